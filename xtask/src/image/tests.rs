//! Whole archives, made of small programs that cannot run.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

use serde_json::Value;

use super::*;
use crate::image::audit::Contents;
use crate::image::oci::Digest;

fn sample(archs: &[Arch]) -> Vec<u8> {
    let info = ImageInfo {
        tag: "tholepin:1".to_owned(),
        version: "0.1.0".to_owned(),
        revision: Some("c0ffee".to_owned()),
        created: 1_700_000_000,
        user: "65532:65532".to_owned(),
    };
    let platform = |arch: &Arch| Platform {
        arch: *arch,
        program: Vec::new(),
        layer: Layer::new(&elf::tests::program(*arch, &[1]), "licence", info.created).unwrap(),
        sbom: format!("{{\"for\": {:?}}}", arch.oci()).into_bytes(),
    };
    oci::archive(&info, &archs.iter().map(platform).collect::<Vec<_>>()).unwrap().bytes
}

fn unpack(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        let (path, mut content) = (entry.path().unwrap().display().to_string(), Vec::new());
        entry.read_to_end(&mut content).unwrap();
        files.insert(path, content);
    }
    files
}

fn pack(files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in files.iter().filter(|(path, _)| !path.ends_with('/')) {
        let mut header = layer::header(tar::EntryType::Regular, 0o644, content, 0);
        archive.append_data(&mut header, path, content.as_slice()).unwrap();
    }
    archive.into_inner().unwrap()
}

/// The path of the blob whose text has `part`, and its content.
fn blob(files: &BTreeMap<String, Vec<u8>>, part: &str) -> (String, String) {
    let texts = files.iter().filter_map(|(path, content)| Some((path, std::str::from_utf8(content).ok()?)));
    let mut found = texts.filter(|(path, text)| path.starts_with("blobs/sha256/") && text.contains(part));
    let (path, text) = found.next().unwrap_or_else(|| panic!("no blob has {part}"));
    (path.clone(), text.to_owned())
}

#[test]
fn an_archive_is_as_the_specification_wants_it() {
    fn check(archs: &[Arch], names: &[&str]) {
        let platforms = names.iter().map(|name| (*name).to_owned()).collect();
        let wanted = Contents { tag: "tholepin:1".to_owned(), platforms };
        assert_eq!(audit::archive(&sample(archs)).unwrap(), wanted);
    }
    check(&[Arch::Amd64], &["amd64"]);
    check(&[Arch::Arm64], &["arm64"]);
    check(&[Arch::Amd64, Arch::Arm64], &["amd64", "arm64"]);
}

#[test]
fn the_program_comes_out_of_the_archive_as_it_went_in() {
    let arm64 = elf::tests::program(Arch::Arm64, &[1]);
    assert_eq!(packed_program(&sample(&[Arch::Arm64])).unwrap(), arm64);
    let error = packed_program(&sample(&Arch::ALL)).unwrap_err().to_string();
    assert_eq!(error, "the archive has 2 programs, not 1");
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let one = sample(&Arch::ALL);
    assert!(one == sample(&Arch::ALL));
    for entry in tar::Archive::new(&*one).entries().unwrap() {
        let header = entry.unwrap().header().clone();
        assert_eq!(header.mtime().unwrap(), 1_700_000_000);
        assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
    }
}

#[test]
fn the_image_says_what_it_runs_and_as_whom() {
    let files = unpack(&sample(&[Arch::Arm64]));
    let config: Value = serde_json::from_str(&blob(&files, "diff_ids").1).unwrap();
    let check = |pointer: &str, wanted: &str| {
        assert_eq!(config.pointer(pointer).and_then(Value::as_str), Some(wanted), "{pointer}");
    };
    check("/architecture", "arm64");
    check("/os", "linux");
    check("/created", "2023-11-14T22:13:20Z");
    check("/config/User", "65532:65532");
    check("/config/Entrypoint/0", "/tholepin");
    check("/config/Env/0", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    check("/config/Labels/org.opencontainers.image.revision", "c0ffee");
    check("/config/Labels/org.opencontainers.image.version", "0.1.0");
    check("/config/Labels/org.opencontainers.image.licenses", "Apache-2.0");
}

#[test]
fn a_bundle_is_its_files_and_its_labels() {
    let text = |path: &str| (path.to_owned(), "a: b".to_owned());
    let texts = BTreeMap::from(
        ["manifests/x.yaml", "metadata/annotations.yaml", "tests/scorecard/config.yaml"].map(text),
    );
    let layer = Layer::of_texts(&texts, 1_700_000_000).unwrap();
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&*layer.gzip).read_to_end(&mut plain).unwrap();
    let files = unpack(&plain);
    let folders = ["manifests/", "metadata/", "tests/", "tests/scorecard/"];
    assert_eq!(files.len(), texts.len() + folders.len());
    assert!(folders.iter().all(|folder| files.contains_key(*folder)));
    assert!(texts.iter().all(|(path, text)| files[path] == text.as_bytes()));
    let info = ImageInfo {
        tag: "bundle:1".to_owned(),
        version: "1".to_owned(),
        revision: None,
        created: 1_700_000_000,
        user: String::new(),
    };
    let annotations = include_str!("../../../bundle-hardware/metadata/annotations.yaml");
    let annotations = crate::bundle::Annotations::read(annotations).unwrap();
    assert_eq!(annotations.image().unwrap(), "tholepin-hardware-bundle");
    let labels = annotations.labels();
    assert_eq!(labels["operators.operatorframework.io.bundle.package.v1"], "tholepin-hardware-operator");
    let archive = oci::archive_of_files(&info, &layer, &labels).unwrap();
    let files = unpack(&archive.bytes);
    let config: Value = serde_json::from_str(&blob(&files, "diff_ids").1).unwrap();
    assert_eq!(config["config"]["Labels"], serde_json::to_value(&labels).unwrap());
    assert_eq!(config["config"]["Entrypoint"], Value::Null);
    assert!(files.contains_key(&format!("blobs/sha256/{}", archive.digest.hex())));
}

#[test]
fn what_is_wrong_with_an_archive_is_found() {
    type Edit = fn(&mut BTreeMap<String, Vec<u8>>);
    fn check(edit: Edit, wanted: &str) {
        let mut files = unpack(&sample(&Arch::ALL));
        edit(&mut files);
        let error = audit::archive(&pack(&files)).expect_err(wanted);
        assert!(format!("{error:#}").contains(wanted), "{error:#}");
    }
    /// Replaces a text in the one blob that has it, under the old name.
    fn replace(files: &mut BTreeMap<String, Vec<u8>>, from: &str, to: &str) {
        let (path, text) = blob(files, from);
        files.insert(path, text.replace(from, to).into_bytes());
    }
    check(|files| replace(files, "\"for\": \"arm64\"", "\"for\": \"ARM64\""), "has the digest");
    check(|files| replace(files, "\"for\": \"arm64\"", "\"for\": 1"), "bytes and not");
    check(|files| drop(files.remove("oci-layout")), "oci-layout is missing");
    check(|files| drop(files.remove(&blob(files, "diff_ids").0)), "is missing");
    check(|files| drop(files.insert("blobs/sha256/00".to_owned(), Vec::new())), "belongs to nothing");
    check(|files| drop(files.insert("index.json".to_owned(), b"{}".to_vec())), "index.json: missing field");
    check(
        |files| drop(files.insert("oci-layout".to_owned(), br#"{"imageLayoutVersion": "2"}"#.to_vec())),
        "1.0.0",
    );
    // Blobs that are what they are called, but not what they must be, and all that names them.
    check(
        |files| rename(files, "diff_ids", |text| text.replace("sha256:", "sha256:0")),
        "not those of the configuration",
    );
    check(
        |files| rename(files, "diff_ids", |text| text.replace("\"linux\"", "\"plan9\"")),
        "the image plan9/",
    );
    check(
        |files| rename(files, "\"subject\"", |text| text.replace("subject", "object")),
        "an SBOM of no image",
    );
    check(|files| rename(files, "\"subject\"", |text| text.replace(oci::EMPTY, oci::CONFIG)), "where a");
}

/// Changes the blob that has `part`, and digest and size of it in all documents above, up to `index.json`.
fn rename(files: &mut BTreeMap<String, Vec<u8>>, part: &str, edit: fn(&str) -> String) {
    let (path, old) = blob(files, part);
    let new = edit(&old);
    assert_ne!(old, new, "nothing to change");
    let mut changes = vec![(path, new.into_bytes())];
    while let Some((path, new)) = changes.pop() {
        let Some(was) = path.strip_prefix("blobs/sha256/") else { continue };
        let is = Digest::of(&new);
        files.remove(&path);
        files.insert(format!("blobs/sha256/{}", is.hex()), new.clone());
        let above =
            files.iter().filter(|(_, content)| content.windows(64).any(|text| text == was.as_bytes()));
        for path in above.map(|(path, _)| path.clone()).collect::<Vec<_>>() {
            let mut document: Value = serde_json::from_slice(&files[&path]).unwrap();
            point(&mut document, &format!("sha256:{was}"), &is, new.len());
            let document = serde_json::to_vec(&document).unwrap();
            files.insert(path.clone(), document.clone());
            changes.push((path, document));
        }
    }
}

/// Lets every descriptor of `was` name `is`.
fn point(document: &mut Value, was: &str, is: &Digest, size: usize) {
    if document["digest"].as_str() == Some(was) {
        document["digest"] = is.to_string().into();
        document["size"] = size.into();
    }
    match document {
        Value::Object(fields) => fields.values_mut().for_each(|value| point(value, was, is, size)),
        Value::Array(items) => items.iter_mut().for_each(|value| point(value, was, is, size)),
        _ => {}
    }
}

#[test]
fn names_and_users_are_checked() {
    let check = |text: &str, good: bool| assert_eq!(tag(text).is_ok(), good, "{text:?}");
    check("tholepin:0.1.0", true);
    check("registry.example:5000/team/tholepin:V1", true);
    check("tholepin", false);
    check("Tholepin:1", false);
    check("tholepin:", false);
    check(":1", false);
    check("tholepin:a b", false);
    check("registry.example:5000/tholepin", false);
    check(&format!("{}:1", "a".repeat(300)), false);
    let check = |text: &str, good: bool| assert_eq!(repository(text).is_ok(), good, "{text:?}");
    check("registry.example:5000/team/tholepin", true);
    check("tholepin", true);
    check("tholepin:1", false);
    check("Team/tholepin", false);
    let check = |text: &str, wanted: Option<&str>| assert_eq!(user(text).ok().as_deref(), wanted, "{text:?}");
    check("0:0", Some("0:0"));
    check("65532:65532", Some("65532:65532"));
    check("root:root", None);
    check("1", None);
    check("-1:0", None);
}

/// What others make of it: the tool that most engines' code for archives is from.
#[test]
fn skopeo_reads_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image.tar");
    fs::write(&path, sample(&Arch::ALL)).unwrap();
    let source = format!("oci-archive:{}", path.display());
    let skopeo = |args: &[&str]| {
        let mut command = Command::new("skopeo");
        command.args(["--override-os", "linux", "--override-arch", "arm64", "--insecure-policy"]).args(args);
        command.output()
    };
    let inspected = match skopeo(&["inspect", &source]) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // Past the capturing of tests that pass.
            let line = "SKIPPED image::tests::skopeo_reads_the_archive: skopeo is not installed\n";
            std::io::stderr().write_all(line.as_bytes()).unwrap();
            return;
        }
        other => other.unwrap(),
    };
    assert!(inspected.status.success(), "{}", String::from_utf8_lossy(&inspected.stderr));
    let seen: Value = serde_json::from_slice(&inspected.stdout).unwrap();
    assert_eq!((&seen["Architecture"], &seen["Os"]), (&Value::from("arm64"), &Value::from("linux")));
    assert_eq!(seen["Labels"]["org.opencontainers.image.title"], "tholepin");
    let copied =
        skopeo(&["copy", "--all", &source, &format!("dir:{}", folder.path().join("copy").display())])
            .unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
}
