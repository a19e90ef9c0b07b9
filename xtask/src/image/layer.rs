//! The image's only layer.
//!
//! In: the program and the time of every file. Out: a compressed tar archive and the digests of both forms. The same
//! input gives the same bytes, anywhere and at any time. Never: the file system.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};

use anyhow::Context as _;
use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};

use super::oci::Digest;

/// Names under which the program is in `/bin`, for manifests written for other programs (a command of
/// `/bin/resource-topology-exporter`, or `nfd-topology-updater` found through `PATH`), and for collectors and jobs that
/// enter its containers (`cat`, `printenv`, `chroot`).
pub(crate) const NAMES: &[&str] = &[
    "cat",
    "chroot",
    "deployer",
    "deviceplugin",
    "gather",
    "kube-scheduler",
    "lsplatform",
    "nfd-topology-updater",
    "nrovalidate",
    "numaresources-operator",
    "pfpsyncchk",
    "printenv",
    "resource-topology-exporter",
    "rte",
    "sample-device-plugin",
    "schedlogs",
    "tholepin",
];

/// A layer as it lies in the image.
pub(crate) struct Layer {
    /// The archive, compressed.
    pub(crate) gzip: Vec<u8>,
    /// The digest of the archive, not compressed.
    pub(crate) diff_id: Digest,
}

/// What a file of an archive is.
pub(crate) enum Content<'a> {
    Folder,
    Program(&'a [u8]),
    Text(&'a str),
    Link(String),
}

impl Layer {
    /// The layer with `program` at its root, its names in `/bin`, and the licence. All files belong to root and
    /// have the time `mtime`, in seconds since 1970.
    pub(crate) fn new(program: &[u8], licence: &str, mtime: u64) -> anyhow::Result<Self> {
        let mut files = vec![
            ("LICENSE".to_owned(), Content::Text(licence)),
            ("bin/".to_owned(), Content::Folder),
            ("tholepin".to_owned(), Content::Program(program)),
        ];
        files.extend(
            NAMES.iter().map(|name| (format!("bin/{name}"), Content::Link("../tholepin".to_owned()))),
        );
        Self::of(files, mtime)
    }

    /// The layer with these texts by path, and the folders they are in.
    pub(crate) fn of_texts(texts: &BTreeMap<String, String>, mtime: u64) -> anyhow::Result<Self> {
        let folders: BTreeSet<String> = texts
            .keys()
            .flat_map(|path| path.match_indices('/').map(|(at, _)| path[..=at].to_owned()))
            .collect();
        let folders = folders.into_iter().map(|folder| (folder, Content::Folder));
        let texts = texts.iter().map(|(path, text)| (path.clone(), Content::Text(text)));
        Self::of(folders.chain(texts).collect(), mtime)
    }

    /// An archive of these files.
    pub(crate) fn of(mut files: Vec<(String, Content<'_>)>, mtime: u64) -> anyhow::Result<Self> {
        // By name, and so folders before what is in them.
        files.sort_by(|(one, _), (other, _)| one.cmp(other));
        let archive = archive(&files, mtime).context("writing the layer")?;
        let gzip = compress(&archive).context("compressing the layer")?;
        Ok(Self { gzip, diff_id: Digest::of(&archive) })
    }
}

fn archive(files: &[(String, Content<'_>)], mtime: u64) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let (kind, mode, data): (_, _, &[u8]) = match content {
            Content::Folder => (EntryType::Directory, 0o755, &[]),
            Content::Program(program) => (EntryType::Regular, 0o755, program),
            Content::Text(text) => (EntryType::Regular, 0o644, text.as_bytes()),
            Content::Link(_) => (EntryType::Symlink, 0o777, &[]),
        };
        let mut header = header(kind, mode, data, mtime);
        match content {
            Content::Link(target) => archive.append_link(&mut header, path, target)?,
            _ => archive.append_data(&mut header, path, data)?,
        }
    }
    archive.into_inner()
}

/// A header with nothing in it of the machine it was made on.
pub(crate) fn header(kind: EntryType, mode: u32, data: &[u8], mtime: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(mtime);
    header.set_size(data.len() as u64);
    header
}

/// Level 6: 9 is five times as slow and saves one per cent.
fn compress(archive: &[u8]) -> io::Result<Vec<u8>> {
    // No name, no time, "unknown" system.
    let mut gzip = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::new(6));
    gzip.write_all(archive)?;
    gzip.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::*;

    #[test]
    fn the_layer_has_what_manifests_run() {
        let layer = Layer::new(b"program", "licence", 1_700_000_000).unwrap();
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&*layer.gzip).read_to_end(&mut plain).unwrap();
        assert_eq!(Digest::of(&plain), layer.diff_id);
        let mut found = BTreeMap::new();
        for entry in tar::Archive::new(&*plain).entries().unwrap() {
            let mut entry = entry.unwrap();
            let (header, path) = (entry.header().clone(), entry.path().unwrap().display().to_string());
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0), "{path}");
            assert_eq!(header.mtime().unwrap(), 1_700_000_000, "{path}");
            let link = entry.link_name().unwrap().map(|target| target.display().to_string());
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            found.insert(path, (header.mode().unwrap(), link.unwrap_or(text)));
        }
        let mut check = |path: &str, mode: u32, content: &str| {
            assert_eq!(found.remove(path), Some((mode, content.to_owned())), "{path}");
        };
        check("tholepin", 0o755, "program");
        check("LICENSE", 0o644, "licence");
        check("bin/", 0o755, "");
        NAMES.iter().for_each(|name| check(&format!("bin/{name}"), 0o777, "../tholepin"));
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn the_documentation_lists_the_names_that_are_shipped() {
        let page = std::fs::read_to_string(crate::tree::root().join("docs/images.md")).unwrap();
        let row = page.lines().find_map(|line| line.strip_prefix("| `/bin/`: ")).unwrap();
        let cell = row.split(" | ").next().unwrap();
        let names: Vec<&str> = cell.split(", ").map(|name| name.trim_matches('`')).collect();
        assert_eq!(names, NAMES);
    }

    #[test]
    fn nothing_but_the_input_counts() {
        let layer = |program, mtime| Layer::new(program, "licence", mtime).unwrap().gzip;
        let one = layer(b"program", 1_700_000_000);
        assert_eq!(one, layer(b"program", 1_700_000_000));
        assert_ne!(one, layer(b"program", 1_700_000_001));
        assert_ne!(one, layer(b"programm", 1_700_000_000));
        // Flags, time, system: the bytes in which gzip files differ between machines.
        assert_eq!(one[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, one[8], 255]);
    }
}
