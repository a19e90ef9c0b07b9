//! What is in a release.
//!
//! In: programs with their SBOMs, pages, a commit's time. Out: files by name, with their checksums. Never: a file of
//! the machine but the licence, or a manifest that no other module makes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use deployer::manifests::parts;
use deployer::options::Options;
use deployer::part::{Component, Part};
use deployer::platform::Platform as Cluster;
use objects::Object;

use super::krew::Plugin;
use crate::image::layer::{Content, Layer};
use crate::image::{self, Archive, Digest, ImageInfo, Platform};
use crate::{bundle, chart, manifests};

/// The program's name and version, with what is behind them.
pub(super) fn name(rest: &str) -> String {
    format!("tholepin-{}{rest}", env!("CARGO_PKG_VERSION"))
}

/// The image's name in its archive.
pub(super) fn tag(repository: &str) -> String {
    format!("{repository}:{}", env!("CARGO_PKG_VERSION"))
}

/// What a release is made of.
pub(super) struct Release<'r> {
    pub(super) info: ImageInfo,
    /// Where the image will be.
    pub(super) repository: &'r str,
    /// Where the files will be.
    pub(super) url: &'r str,
    pub(super) platforms: &'r [Platform],
    /// Completions and man pages by path.
    pub(super) pages: BTreeMap<String, String>,
}

/// Files by name.
type Files = BTreeMap<String, Vec<u8>>;

impl Release<'_> {
    /// All files; `say` is told what is made.
    ///
    /// # Errors
    /// When a part cannot be made.
    pub(super) fn files(&self, say: &mut dyn FnMut(&str)) -> anyhow::Result<Files> {
        let mut files = Files::new();
        say("archives of the programs");
        self.programs(&mut files)?;
        say("image");
        let archive = image::archive(&self.info, self.platforms)?;
        let image = format!("{}@{}", self.repository, archive.digest);
        files.insert(name("-image.oci.tar"), archive.bytes);
        say("chart");
        files.insert(name(".tgz"), self.chart(&archive.digest)?);
        say("manifests");
        self.manifests(&mut files, &image)?;
        say("bundles");
        self.bundles(&mut files, &image)?;
        files.insert("SHA256SUMS".to_owned(), checksums(&files).into_bytes());
        Ok(files)
    }

    /// An archive, an SBOM and krew's manifest of the programs.
    fn programs(&self, files: &mut Files) -> anyhow::Result<()> {
        let licence =
            std::fs::read_to_string(crate::tree::root().join("LICENSE")).context("reading LICENSE")?;
        let mut archives = Vec::new();
        for platform in self.platforms {
            let mut content = vec![
                ("LICENSE".to_owned(), Content::Text(&licence)),
                ("tholepin".to_owned(), Content::Program(&platform.program)),
            ];
            content.extend(with_folders(&self.pages));
            let bytes = Layer::of(content, self.info.created)?.gzip;
            let file = name(&format!("-linux-{}.tar.gz", platform.arch.oci()));
            archives.push((platform.arch, format!("{}/{file}", self.url), Digest::of(&bytes)));
            files.insert(file, bytes);
            files.insert(name(&format!("-linux-{}.cdx.json", platform.arch.oci())), platform.sbom.clone());
        }
        let plugin = runtime::yaml::write(&Plugin::of(&self.info.version, archives))?;
        files.insert("krew-tholepin.yaml".to_owned(), plugin.into_bytes());
        Ok(())
    }

    /// The chart as Helm packs it, with the image by its digest.
    fn chart(&self, digest: &Digest) -> anyhow::Result<Vec<u8>> {
        let chart = chart::tree(self.repository, Some(&digest.to_string()))?;
        let texts = chart.texts().iter().map(|(path, text)| (format!("tholepin/{path}"), text.clone()));
        let texts: BTreeMap<String, String> = texts.collect();
        let content = texts.iter().map(|(path, text)| (path.clone(), Content::Text(text))).collect();
        Ok(Layer::of(content, self.info.created)?.gzip)
    }

    /// What is applied to install exporter and scheduler, or an operator, on each platform.
    fn manifests(&self, files: &mut Files, image: &str) -> anyhow::Result<()> {
        let mut add = |what: &str, platform: Cluster, objects: &[Object]| {
            let text = deployer::manifests::text::render_objects(objects)?;
            let file = format!("{what}-{}.yaml", manifests::word(platform));
            files.insert(file, text.into_bytes());
            anyhow::Ok(())
        };
        for platform in Cluster::ALL {
            let mut options = Options { platform, ..Options::default() };
            image.clone_into(&mut options.images.tholepin);
            let parts = parts(&options, &Component::ALL)?;
            let objects: Vec<Object> = parts.iter().flat_map(Part::objects).cloned().collect();
            add("install", platform, &objects)?;
            let options = manifests::options(platform, image);
            add("operator", platform, &operator::manifests::objects(&options))?;
            add("hardware", platform, &manifests::hardware_objects(platform, image))?;
        }
        Ok(())
    }

    /// The operators' bundles: their images, and the folders that they and a catalog are made of.
    fn bundles(&self, files: &mut Files, image: &str) -> anyhow::Result<()> {
        let info = |name: &str| ImageInfo { tag: tag(&self.beside(name)), ..self.info.clone() };
        let named = |name: &str, archive: &Archive| format!("{}@{}", self.beside(name), archive.digest);
        let released = bundle::released(image, info, named)?;
        for (image, archive) in released.archives {
            files.insert(format!("{image}-{}.oci.tar", self.info.version), archive.bytes);
        }
        let content = with_folders(&released.folders);
        files.insert(name("-olm.tar.gz"), Layer::of(content, self.info.created)?.gzip);
        Ok(())
    }

    /// Another image in the folder of ours.
    fn beside(&self, name: &str) -> String {
        match self.repository.rsplit_once('/') {
            Some((folder, _)) => format!("{folder}/{name}"),
            None => name.to_owned(),
        }
    }
}

/// Texts by path, and the folders they are in.
fn with_folders(texts: &BTreeMap<String, String>) -> Vec<(String, Content<'_>)> {
    let folders = texts.keys().flat_map(|path| path.match_indices('/').map(|(at, _)| path[..=at].to_owned()));
    let folders: BTreeSet<String> = folders.collect();
    let folders = folders.into_iter().map(|folder| (folder, Content::Folder));
    let texts = texts.iter().map(|(path, text)| (path.clone(), Content::Text(text)));
    folders.chain(texts).collect()
}

/// What `sha256sum --check` reads.
fn checksums(files: &Files) -> String {
    files.iter().map(|(name, bytes)| format!("{}  {name}\n", Digest::of(bytes).hex())).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::image::Arch;

    fn files(created: u64) -> Files {
        let platform = |arch: Arch| Platform {
            arch,
            program: arch.oci().as_bytes().to_vec(),
            layer: Layer::new(&crate::image::sample_program(arch), "licence", created).unwrap(),
            sbom: b"{}".to_vec(),
        };
        let platforms = Arch::ALL.map(platform);
        let info = ImageInfo {
            tag: "registry.example/team/tholepin:1".to_owned(),
            version: "0.1.0".to_owned(),
            revision: Some("c0ffee".to_owned()),
            created,
            user: "65532:65532".to_owned(),
        };
        let pages = [("man/man1/tholepin.1", "page"), ("completions/tholepin.bash", "complete")];
        let release = Release {
            info,
            repository: "registry.example/team/tholepin",
            url: "https://releases.example/1",
            platforms: &platforms,
            pages: pages.map(|(path, text)| (path.to_owned(), text.to_owned())).into(),
        };
        release.files(&mut |_| {}).unwrap()
    }

    fn unpack(gzip: &[u8]) -> BTreeMap<String, String> {
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(gzip));
        let mut texts = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let (path, mut text) = (entry.path().unwrap().display().to_string(), String::new());
            entry.read_to_string(&mut text).unwrap();
            texts.insert(path, text);
        }
        texts
    }

    fn text<'f>(files: &'f Files, name: &str) -> &'f str {
        std::str::from_utf8(&files[name]).unwrap()
    }

    #[test]
    fn the_same_sources_give_the_same_files() {
        let one = files(1_700_000_000);
        assert!(one == files(1_700_000_000));
        assert!(one["SHA256SUMS"] != files(1_700_000_001)["SHA256SUMS"]);
        let sums = text(&one, "SHA256SUMS");
        assert_eq!(sums.lines().count() + 1, one.len());
        for line in sums.lines() {
            let (sum, name) = line.split_once("  ").unwrap();
            assert_eq!(Digest::of(&one[name]).hex(), sum, "{name}");
        }
    }

    #[test]
    fn everything_names_the_image_of_the_release_by_its_digest() {
        let files = files(1_700_000_000);
        let archive = &files["tholepin-0.1.0-image.oci.tar"];
        let mut index = String::new();
        for entry in tar::Archive::new(&**archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            if entry.path().unwrap().display().to_string() == "index.json" {
                entry.read_to_string(&mut index).unwrap();
            }
        }
        let index: serde_json::Value = serde_json::from_str(&index).unwrap();
        let digest = index["manifests"][0]["digest"].as_str().unwrap();
        let image = format!("registry.example/team/tholepin@{digest}");
        for what in ["install", "operator", "hardware"] {
            for platform in ["kubernetes", "openshift", "hypershift"] {
                let manifests = text(&files, &format!("{what}-{platform}.yaml"));
                assert!(manifests.contains(&image), "{what} {platform}");
                assert!(!manifests.contains("tholepin:0.1.0"), "{what} {platform}");
            }
        }
        let chart = unpack(&files["tholepin-0.1.0.tgz"]);
        assert!(chart["tholepin/values.yaml"].contains(digest));
        assert!(chart["tholepin/values.yaml"].contains("repository: registry.example/team/tholepin"));
        let olm = unpack(&files["tholepin-0.1.0-olm.tar.gz"]);
        let named = |part: &str| olm.values().filter(|text| text.contains(part)).count();
        assert!(named(&image) >= 4);
        assert!(named("registry.example/team/tholepin-bundle@sha256:") >= 1);
        assert!(named("registry.example/team/tholepin-hardware-bundle@sha256:") >= 1);
    }

    #[test]
    fn krew_finds_programs_for_both_architectures() {
        let files = files(1_700_000_000);
        let plugin: serde_json::Value =
            runtime::yaml::read_many("krew", text(&files, "krew-tholepin.yaml"), 1).unwrap().remove(0);
        for (number, arch) in ["amd64", "arm64"].into_iter().enumerate() {
            let platform = &plugin["spec"]["platforms"][number];
            let file = format!("tholepin-0.1.0-linux-{arch}.tar.gz");
            assert_eq!(platform["selector"]["matchLabels"]["arch"], arch);
            assert_eq!(platform["uri"], format!("https://releases.example/1/{file}"));
            assert_eq!(platform["sha256"], Digest::of(&files[&file]).hex());
            let content = unpack(&files[&file]);
            assert_eq!(content[platform["bin"].as_str().unwrap()], arch);
            assert_eq!(content["man/man1/tholepin.1"], "page");
            assert_eq!(content["completions/tholepin.bash"], "complete");
        }
    }
}
