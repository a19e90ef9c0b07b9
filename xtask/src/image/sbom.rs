//! The bill of materials: what a program was made from, as CycloneDX 1.6 JSON.
//!
//! In: the program's digest and its parts. Out: a document. Its serial number comes from its content, so that
//! the same parts give the same bytes. Never: tools, authors, machines.

use serde_json::{Value, json};

use super::oci::Digest;

mod crates;

pub(crate) use crates::Metadata;

/// Something that is linked into the program.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) version: String,
    /// An SPDX expression.
    pub(crate) licence: Option<String>,
    /// Where it is from, as a package URL.
    pub(crate) purl: Option<String>,
    /// SHA-256 of its source archive, in hexadecimal.
    pub(crate) checksum: Option<String>,
    /// `name@version` of the parts it uses.
    pub(crate) uses: Vec<String>,
}

/// What the document is about.
pub(crate) struct Subject<'a> {
    pub(crate) program: &'a [u8],
    pub(crate) version: &'a str,
    /// Rust's target.
    pub(crate) target: &'a str,
    /// The time of the image, in RFC 3339.
    pub(crate) created: &'a str,
}

/// The document for a program of which `crates` and `runtime` (the standard library, the C library) are all
/// parts. `crates` has the program's own package, too, by the name `tholepin`.
pub(crate) fn document(subject: &Subject<'_>, crates: &[Part], runtime: &[Part]) -> anyhow::Result<Vec<u8>> {
    let own = format!("tholepin@{}", subject.version);
    let under: Vec<String> = runtime.iter().map(Part::key).collect();
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    for part in crates.iter().chain(runtime) {
        let mut uses = part.uses.clone();
        if part.key() == own {
            // All crates stand on them; to say so once is enough.
            uses.extend(under.iter().cloned());
        } else {
            components.push(part.component());
        }
        dependencies.push(json!({"ref": part.key(), "dependsOn": uses}));
    }
    let mut bom = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": subject.created,
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "tholepin",
                "version": subject.version,
                "licenses": [{"expression": "Apache-2.0"}],
                "hashes": [{"alg": "SHA-256", "content": Digest::of(subject.program).hex()}],
                "properties": [{"name": "rust:target", "value": subject.target}],
            },
        },
        "components": components,
        "dependencies": dependencies,
    });
    let serial = serial(&Digest::of(&serde_json::to_vec(&bom)?));
    if let Some(fields) = bom.as_object_mut() {
        fields.insert("serialNumber".to_owned(), Value::String(serial));
    }
    let mut text = serde_json::to_vec_pretty(&bom)?;
    text.push(b'\n');
    Ok(text)
}

/// The crates of the program `tholepin`; see [`crates::linked`].
pub(crate) fn linked(metadata: &Metadata, tree: &str, lock: &str) -> anyhow::Result<Vec<Part>> {
    crates::linked(metadata, tree, lock)
}

impl Part {
    /// Something without uses or a source archive of its own.
    pub(crate) fn runtime(name: &str, version: &str, licence: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            licence: Some(licence.to_owned()),
            purl: Some(format!("pkg:generic/{name}@{version}")),
            checksum: None,
            uses: Vec::new(),
        }
    }

    fn key(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    fn component(&self) -> Value {
        let mut component =
            json!({"type": "library", "bom-ref": self.key(), "name": self.name, "version": self.version});
        if let Some(licence) = &self.licence {
            component["licenses"] = json!([{"expression": licence}]);
        }
        if let Some(purl) = &self.purl {
            // The one character of Rust's versions that a package URL may not have as it is.
            component["purl"] = json!(purl.replace('+', "%2B"));
        }
        if let Some(checksum) = &self.checksum {
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        component
    }
}

/// A UUID of version 8 (made by a rule of one's own) from a digest.
fn serial(digest: &Digest) -> String {
    let hex = digest.hex();
    format!("urn:uuid:{}-{}-8{}-8{}-{}", &hex[..8], &hex[8..12], &hex[12..15], &hex[15..18], &hex[18..30])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, uses: &[&str]) -> Part {
        let uses = uses.iter().map(|name| format!("{name}@1.0.0+a")).collect();
        Part { uses, checksum: Some("7a".to_owned()), ..Part::runtime(name, "1.0.0+a", "MIT") }
    }

    fn subject(program: &[u8]) -> Subject<'_> {
        let (version, target) = ("1.0.0+a", "x86_64-unknown-linux-gnu");
        Subject { program, version, target, created: "2026-01-01T00:00:00Z" }
    }

    #[test]
    fn every_part_is_named_once_and_every_use_has_a_part() {
        let crates = [part("serde", &[]), part("tholepin", &["serde"])];
        let runtime = [Part::runtime("glibc", "2.36", "LGPL-2.1-or-later")];
        let text = document(&subject(b"program"), &crates, &runtime).unwrap();
        let bom: Value = serde_json::from_slice(&text).unwrap();
        let names: Vec<_> =
            bom["components"].as_array().unwrap().iter().map(|part| &part["bom-ref"]).collect();
        assert_eq!(names, ["serde@1.0.0+a", "glibc@2.36"]);
        assert_eq!(bom["components"][0]["purl"], "pkg:generic/serde@1.0.0%2Ba");
        assert_eq!(bom["components"][0]["hashes"][0]["content"], "7a");
        assert_eq!(bom["metadata"]["component"]["hashes"][0]["content"], Digest::of(b"program").hex());
        assert_eq!(
            bom["dependencies"],
            json!([
                {"ref": "serde@1.0.0+a", "dependsOn": []},
                {"ref": "tholepin@1.0.0+a", "dependsOn": ["serde@1.0.0+a", "glibc@2.36"]},
                {"ref": "glibc@2.36", "dependsOn": []},
            ])
        );
    }

    #[test]
    fn the_serial_number_follows_the_content() {
        let serial = |program: &[u8]| {
            let text = document(&subject(program), &[], &[]).unwrap();
            assert_eq!(text, document(&subject(program), &[], &[]).unwrap());
            let bom: Value = serde_json::from_slice(&text).unwrap();
            bom["serialNumber"].as_str().unwrap().to_owned()
        };
        let one = serial(b"program");
        assert_ne!(one, serial(b"another"));
        let lengths: Vec<_> = one.trim_start_matches("urn:uuid:").split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{one}");
    }
}
