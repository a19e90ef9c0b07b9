//! The page: one document with a style sheet and a script, made of nothing else.
//!
//! In: data, for a report. Out: the files of the page, or all of them in one. Never: a request to another server, or
//! text of the cluster that could be taken for markup.

use serde::Serialize;

/// The document; it names the other two files.
pub(crate) const DOCUMENT: &str = include_str!("../assets/index.html");
/// The style sheet.
pub(crate) const STYLE: &str = include_str!("../assets/style.css");
/// The script.
pub(crate) const SCRIPT: &str = include_str!("../assets/app.js");

/// The line of the document that loads the style sheet.
const STYLE_LINK: &str = "<link rel=\"stylesheet\" href=\"style.css\">";
/// The line that loads the script.
const SCRIPT_LINK: &str = "<script src=\"app.js\" defer></script>";

/// The page with its data in one file.
///
/// # Errors
/// When the data cannot be written as JSON.
pub(crate) fn with_data(data: &impl Serialize) -> serde_json::Result<String> {
    // In a script element only `<` could begin markup.
    let json = serde_json::to_string(data)?.replace('<', "\\u003c");
    let style = format!("<style>\n{STYLE}</style>");
    let script =
        format!("<script type=\"application/json\" id=\"data\">{json}</script>\n<script>\n{SCRIPT}</script>");
    // The script comes after all it looks for.
    let body = DOCUMENT.replace(STYLE_LINK, &style).replace(SCRIPT_LINK, "");
    Ok(body.replace("</body>", &format!("{script}\n</body>")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_loads_its_files_and_no_others() {
        assert_eq!(DOCUMENT.matches(STYLE_LINK).count(), 1);
        assert_eq!(DOCUMENT.matches(SCRIPT_LINK).count(), 1);
        assert_eq!(DOCUMENT.matches("</body>").count(), 1);
        for file in [DOCUMENT, STYLE, SCRIPT] {
            assert!(!file.contains("http://") && !file.contains("https://") && !file.contains("@import"));
        }
        // Text goes into the page as text.
        for markup in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!SCRIPT.contains(markup), "{markup}");
        }
    }

    #[test]
    fn data_cannot_end_its_element() {
        let page = with_data(&serde_json::json!({"name": "</script><script>alert(1)"})).unwrap();
        assert!(!page.contains("</script><script>alert"), "{page}");
        assert!(page.contains(STYLE) && page.contains(SCRIPT));
        assert!(!page.contains(STYLE_LINK) && !page.contains(SCRIPT_LINK));
    }
}
