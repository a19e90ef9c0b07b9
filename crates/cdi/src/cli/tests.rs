use std::fs;

use super::*;

const GOOD: &str = r#"{"cdiVersion": "0.5.0", "kind": "vendor.example/nic", "devices": [
    {"name": "a", "containerEdits": {"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b"}], "env": ["NIC=a"]}}]}"#;
const COLON: &str = r#"{"cdiVersion": "0.5.0", "kind": "vendor.example/gpu", "devices": [
    {"name": "0:1", "containerEdits": {"env": ["A=b"]}}]}"#;
const BAD: &str = "cdiVersion: 0.5.0\nkind: vendor.example/gpu\ndevices: [{name: x}]\n";

/// A folder with files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
    folder
}

/// Runs `validate`: the code, standard output with `DIR` for the folder, and standard error.
fn validate(dir: &Path, paths: &[&str], strict: bool, stdin: &str) -> (u8, String, String) {
    let path = |path: &&str| if *path == "-" { PathBuf::from("-") } else { dir.join(path) };
    let validate = Validate { paths: paths.iter().map(path).collect(), strict };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = validate.run(&mut stdin.as_bytes(), &mut out, &mut err).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap().replace(&dir.display().to_string(), "DIR");
    (code, text(out), text(err))
}

#[test]
fn findings_decide_the_exit_code() {
    let dir = folder(&[("good.json", GOOD), ("colon.json", COLON), ("bad.yaml", BAD), ("notes.txt", "x")]);
    let dir = dir.path();
    let (code, out, err) = validate(dir, &["good.json"], true, "");
    assert_eq!(
        (code, &*out, &*err),
        (0, "1 file and 1 device accepted by runtimes; 0 errors, 0 warnings\n", "")
    );
    assert_eq!(validate(dir, &["colon.json"], false, "").0, 0);
    assert_eq!(validate(dir, &["colon.json"], true, "").0, 1);
    let (code, out, err) = validate(dir, &[""], false, "");
    let lines: Vec<_> = out.lines().collect();
    assert_eq!((code, lines.len(), &*err), (1, 3, ""), "{out}");
    assert!(
        lines[0].starts_with("DIR/bad.yaml: error: devices[0].containerEdits: is empty: one of env"),
        "{out}"
    );
    assert!(lines[1].starts_with("DIR/colon.json: warning: devices[0].name: \"0:1\" has a colon"), "{out}");
    assert_eq!(lines[2], "2 files and 2 devices accepted by runtimes; 1 error, 1 warning");
    let (code, out, err) = validate(dir, &["missing.json", "bad.yaml"], false, "");
    assert_eq!((code, out.lines().count()), (2, 2), "{out}");
    assert!(err.starts_with("error: cannot read DIR/missing.json: No such file"), "{err}");
    let (code, out, _) = validate(dir, &["notes.txt"], false, "");
    assert!(code == 1 && out.starts_with("DIR/notes.txt: error: "), "{out}");
}

#[test]
fn standard_input() {
    let dir = folder(&[]);
    assert_eq!(validate(dir.path(), &["-"], true, GOOD).0, 0);
    let (code, out, _) = validate(dir.path(), &["-"], false, BAD);
    assert!(code == 1 && out.starts_with("standard input: error: devices[0]"), "{out}");
    let (code, out, _) = validate(dir.path(), &["-"], false, "kind: [\n\n");
    assert!(code == 1 && out.starts_with("standard input: error: ") && out.lines().count() == 2, "{out}");
}

#[test]
fn lists() {
    let dir = folder(&[("good.json", GOOD), ("bad.yaml", BAD)]);
    let list = |format| {
        let output = OutputArgs { format };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let list = List { folders: vec![dir.path().to_owned()], output };
        let code = list.run(&mut out, &mut err).unwrap();
        assert!(code == 1 && String::from_utf8(err).unwrap().contains("bad.yaml: error: devices[0]"));
        String::from_utf8(out).unwrap().replace(&dir.path().display().to_string(), "DIR")
    };
    let words = |text: String| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    assert_eq!(words(list(TableFormat::Table)), "NAME FILE vendor.example/nic=a DIR/good.json");
    let wide = "NAME VERSION EDITS FILE vendor.example/nic=a 0.5.0 /dev/a, $NIC DIR/good.json";
    assert_eq!(words(list(TableFormat::Wide)), wide);
    let json: serde_json::Value = serde_json::from_str(&list(TableFormat::Json)).unwrap();
    assert_eq!(
        (json[0]["name"].as_str(), json[0]["cdiVersion"].as_str()),
        (Some("vendor.example/nic=a"), Some("0.5.0"))
    );
    assert_eq!(json[0]["containerEdits"]["deviceNodes"][0]["hostPath"], "/dev/b");
    let yaml: serde_json::Value =
        runtime::yaml::read_str("list", &list(TableFormat::Yaml), runtime::yaml::Mode::Strict).unwrap();
    assert_eq!(yaml, json);
}

#[test]
fn a_folder_that_was_named_must_exist() {
    let dir = folder(&[("good.json", GOOD)]);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let output = OutputArgs { format: TableFormat::Table };
    let list = List { folders: vec![dir.path().to_owned(), dir.path().join("nope")], output };
    assert_eq!(list.run(&mut out, &mut err).unwrap(), UNREADABLE);
    let (out, err) = (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap());
    assert!(
        out.contains("vendor.example/nic=a") && err.contains("/nope: No such file or directory"),
        "{err}"
    );
}
