//! Options from files and short texts, as the flags of the Go deployer take them.
//!
//! In: a file's path, or one text. Out: options, or an error that names the key and the allowed words. Keys match in
//! any letter case and unknown keys are ignored, as Go's decoder does it.

use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use api::schedulerconfig::{ResourceWeight, Word};
use runtime::yaml::{self, CONFIG_LIMIT_BYTES, Mode};
use serde_json::Value;

use super::{CacheOptions, LeaseName, Scoring};

/// The value that a word stands for; `setting` is the Go deployer's name of the setting.
///
/// # Errors
/// When the word is not among those of the type.
pub fn word<T: Word>(setting: &str, text: &str) -> anyhow::Result<T> {
    let allowed = || T::WORDS.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    T::parse(text).with_context(|| format!("unsupported {setting}: {text}; it must be one of {}", allowed()))
}

/// Reads a file with `resyncMethod`, `foreignPodsDetect` and `informerMode` over the options; absent keys change
/// nothing.
///
/// # Errors
/// When the file cannot be read, or a value is not allowed.
pub fn cache(path: &Path, options: &mut CacheOptions) -> anyhow::Result<()> {
    let file = read(path)?;
    let method = stated(&file, "resyncMethod", "cacheResyncMethod")?;
    options.resync_method = method.or(options.resync_method);
    let detect = stated(&file, "foreignPodsDetect", "foreignPodsDetectMode")?;
    options.foreign_pods_detect = detect.or(options.foreign_pods_detect);
    let mode = stated(&file, "informerMode", "cacheInformerMode")?;
    options.informer_mode = mode.or(options.informer_mode);
    Ok(())
}

/// Reads a file with `type` and `resources`, a list of names and weights.
///
/// # Errors
/// When the file cannot be read, or a value is not allowed.
pub fn scoring(path: &Path) -> anyhow::Result<Scoring> {
    let file = read(path)?;
    let kind = stated(&file, "type", "scoringStrategyType")?;
    let resources = match find(&file, "resources") {
        None => Vec::new(),
        Some(Value::Array(list)) => list.iter().map(weight).collect::<anyhow::Result<_>>()?,
        Some(other) => bail!("resources: {other} is not a list of names and weights"),
    };
    Ok(Scoring { kind, resources })
}

fn weight(item: &Value) -> anyhow::Result<ResourceWeight> {
    let name = text(item, "name")?.with_context(|| format!("resources: {item} has no name"))?.to_owned();
    let number =
        |value: &Value| value.as_i64().with_context(|| format!("resources: the weight of {name} is {value}"));
    let weight = find(item, "weight").map_or(Ok(0), number)?;
    Ok(ResourceWeight { name, weight })
}

/// The text of a configuration file; `None` if the file is empty.
///
/// # Errors
/// When the file cannot be read, is larger than [`CONFIG_LIMIT_BYTES`], or is not UTF-8.
pub fn verbatim(path: &Path) -> anyhow::Result<Option<String>> {
    let text = yaml::read_text(path, CONFIG_LIMIT_BYTES).map_err(|error| anyhow!(error.reason))?;
    Ok((!text.is_empty()).then_some(text))
}

/// A lease as `NAME`, `/NAME`, `NAMESPACE/` or `NAMESPACE/NAME`; a missing part is `None`.
///
/// # Errors
/// When there is more than one slash.
pub fn lease(text: &str) -> anyhow::Result<LeaseName> {
    let (namespace, name) = match text.split('/').collect::<Vec<_>>()[..] {
        [name] => ("", name),
        [namespace, name] => (namespace, name),
        _ => bail!("malformed leader election resource: {text:?}"),
    };
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Ok(LeaseName { namespace: given(namespace), name: given(name) })
}

fn read(path: &Path) -> anyhow::Result<Value> {
    Ok(yaml::read_file(path, Mode::Lenient, CONFIG_LIMIT_BYTES)?)
}

/// The value of a key; a null is none.
fn find<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    let (_, value) = value.as_object()?.iter().find(|(name, _)| name.eq_ignore_ascii_case(key))?;
    Some(value).filter(|value| !value.is_null())
}

/// The word of a key, if the file has one.
fn stated<T: Word>(file: &Value, key: &str, setting: &str) -> anyhow::Result<Option<T>> {
    text(file, key)?.map(|text| word(setting, text)).transpose()
}

fn text<'a>(value: &'a Value, key: &str) -> anyhow::Result<Option<&'a str>> {
    match find(value, key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => bail!("{key}: {other} is not a word"),
    }
}

#[cfg(test)]
mod tests {
    use api::schedulerconfig::{ForeignPodsDetect, InformerMode, ResyncMethod, ScoringStrategyType};

    use super::*;

    fn with<T>(content: &str, read: impl FnOnce(&Path) -> anyhow::Result<T>) -> Result<T, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        read(file.path()).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn cache_files_overlay_the_defaults() {
        let read = |content: &str| {
            with(content, |path| {
                let mut options = CacheOptions::default();
                cache(path, &mut options).map(|()| options)
            })
        };
        let defaults = CacheOptions::default();
        assert_eq!(read("unknown: x\n"), Ok(defaults));
        let all = CacheOptions {
            foreign_pods_detect: Some(ForeignPodsDetect::None),
            resync_method: Some(ResyncMethod::All),
            informer_mode: Some(InformerMode::Dedicated),
        };
        assert_eq!(read("foreignpodsdetect: None\nRESYNCMETHOD: All\ninformerMode: Dedicated\n"), Ok(all));
        assert_eq!(
            read(r#"{"foreignPodsDetect":"None","resyncMethod":"All","informerMode":"Dedicated"}"#),
            Ok(all)
        );
        for (content, wanted) in [
            (
                "resyncMethod: Some\n",
                "unsupported cacheResyncMethod: Some; it must be one of Autodetect, All, OnlyExclusiveResources",
            ),
            ("informerMode: [Shared]\n", "informerMode: [\"Shared\"] is not a word"),
        ] {
            assert_eq!(read(content), Err(wanted.to_owned()));
        }
    }

    #[test]
    fn scoring_files_have_a_formula_and_weights() {
        let read = |content: &str| with(content, scoring);
        let weight = |name: &str, weight| ResourceWeight { name: name.to_owned(), weight };
        let wanted = Scoring {
            kind: Some(ScoringStrategyType::MostAllocated),
            resources: vec![weight("cpu", 10), weight("memory", 0)],
        };
        assert_eq!(
            read("type: MostAllocated\nresources:\n- name: cpu\n  weight: 10\n- name: memory\n"),
            Ok(wanted)
        );
        assert_eq!(read("{}"), Ok(Scoring::default()));
        for (content, wanted) in [
            ("type: Best\n", "unsupported scoringStrategyType: Best; it must be one of "),
            ("resources: cpu\n", "resources: \"cpu\" is not a list of names and weights"),
            ("resources: [{weight: 1}]\n", "resources: {\"weight\":1} has no name"),
            ("resources: [{name: cpu, weight: much}]\n", "resources: the weight of cpu is \"much\""),
        ] {
            let error = read(content).unwrap_err();
            assert!(error.starts_with(wanted), "{error}");
        }
    }

    #[test]
    fn files_as_they_are_have_an_end() {
        assert_eq!(with("a: 1\n", verbatim), Ok(Some("a: 1\n".to_owned())));
        assert_eq!(with("", verbatim), Ok(None));
        let size = usize::try_from(CONFIG_LIMIT_BYTES).unwrap() + 1;
        assert_eq!(
            with(&" ".repeat(size), verbatim),
            Err("larger than the limit of 4194304 bytes".to_owned())
        );
        for (path, wanted) in [
            ("/dev/zero", "neither a regular file nor a pipe"),
            ("/nowhere/file", "No such file or directory (os error 2)"),
        ] {
            assert_eq!(verbatim(Path::new(path)).unwrap_err().to_string(), wanted);
        }
    }

    #[test]
    fn leases_have_four_forms() {
        for (text, namespace, name) in [
            ("", None, None),
            ("foobar", None, Some("foobar")),
            ("/foobar", None, Some("foobar")),
            ("foobar/", Some("foobar"), None),
            ("foo/bar", Some("foo"), Some("bar")),
        ] {
            let wanted = LeaseName { namespace: namespace.map(str::to_owned), name: name.map(str::to_owned) };
            assert_eq!(lease(text).unwrap(), wanted, "{text}");
        }
        let error = lease("a/b/c").unwrap_err().to_string();
        assert_eq!(error, "malformed leader election resource: \"a/b/c\"");
    }
}
