//! Data as it is printed.

use serde::Serialize;

/// How to print data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// How to print what a command finds out.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Answer {
    /// How to print: text, json or yaml
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        default_value = "text",
        value_enum,
        hide_possible_values = true
    )]
    pub output: Format,
}

/// How to print what a command does.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Account {
    /// Print what was done to each object: text (nothing), json or yaml
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        default_value = "text",
        value_enum,
        hide_possible_values = true
    )]
    pub output: Format,
}

/// A value in a format; `text` is it for people.
///
/// # Errors
/// When it has no such form.
pub fn formatted<T: Serialize>(
    format: Format,
    value: &T,
    text: impl FnOnce() -> String,
) -> anyhow::Result<String> {
    Ok(match format {
        Format::Text => text(),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(value)?),
        Format::Yaml => runtime::yaml::write(value)?,
    })
}
