//! Truth values in Go's text form, as flags, feature gates and policy options of kubelets carry them.
//!
//! In: text. Out: true or false, or neither. Never: any other spelling (`yes`, `on`, `tRUE`).

/// Reads what Go's `strconv.ParseBool` accepts: `1`, `t`, `T`, `true`, `TRUE`, `True`, and the like for false.
#[must_use]
pub fn parse(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn only_the_spellings_of_go_are_read() {
        for text in ["1", "t", "T", "true", "TRUE", "True"] {
            assert_eq!(parse(text), Some(true), "{text}");
        }
        for text in ["0", "f", "F", "false", "FALSE", "False"] {
            assert_eq!(parse(text), Some(false), "{text}");
        }
        for text in ["", "yes", "on", "tRUE", " true", "2"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
