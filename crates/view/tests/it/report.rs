//! The report: one file that holds its data.

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::fixture;

#[tokio::test]
async fn a_report_is_one_file_with_the_data() {
    let (folder, input) = fixture::dump();
    let to = folder.path().join("report.html");
    let args = view::report::Args { input, to: Some(to.clone()) };
    view::report::run(args, CancellationToken::new()).await.unwrap();
    let page = std::fs::read_to_string(to).unwrap();
    let start = "<script type=\"application/json\" id=\"data\">";
    let (_, rest) = page.split_once(start).unwrap();
    let data: Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    let names: Vec<_> = data["cluster"]["nodes"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["by-ids", "by-zones", "silent"]);
    assert_eq!(data["cluster"]["waiting"]["pods"][0]["name"], "waits");
    assert_eq!(data["pages"]["by-ids"]["pods"][0]["observed"][0]["cpus"], "1-2");
    assert!(!page.contains("href=\"style.css\"") && !page.contains("src=\"app.js\""));
}

#[tokio::test]
async fn wrong_input_is_told() {
    let input = fixture::input(vec!["no-such-file.yaml".into()]);
    let args = view::report::Args { input, to: None };
    let code = view::report::run(args, CancellationToken::new()).await.unwrap();
    assert_eq!(code, std::process::ExitCode::from(2));
}
