//! Images whose containers are real processes: in go names and programs of this machine, out comes what a container of
//! an image is made of. Nothing is pulled or unpacked: an image is a few of the host's files, seen where the image has
//! them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the dynamic loader needs; a static program does not look there.
const LIBRARIES: [&str; 4] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64"];

/// Where the host's own tools and what they need are.
const TOOLS: [&str; 6] = ["/bin", "/sbin", "/usr", "/lib", "/lib64", "/etc/alternatives"];

/// The images that can be pulled, by the references pods use; all others are not found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Images(BTreeMap<String, Image>);

/// What containers of an image run and see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    pub(super) entrypoint: Vec<String>,
    pub(super) command: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) user: (u32, u32),
    /// `(on the host, in the image)`, read-only.
    pub(super) files: Vec<(PathBuf, PathBuf)>,
}

impl Images {
    /// No images.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an image, known by exactly this reference; one without a tag or digest is what pods ask for as `:latest`.
    #[must_use]
    pub fn with(mut self, reference: impl Into<String>, image: Image) -> Self {
        self.0.insert(reference.into(), image);
        self
    }

    pub(super) fn get(&self, reference: &str) -> Option<&Image> {
        self.0.get(reference).or_else(|| self.0.get(reference.strip_suffix(":latest")?))
    }
}

impl Image {
    /// A program of this machine as `/NAME`, which is the entry point, and the libraries that it may need. It
    /// runs as root unless [`Image::user`] says otherwise.
    #[must_use]
    pub fn program(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let name = path.file_name().map(Path::new).unwrap_or(Path::new("program"));
        let inside = Path::new("/").join(name);
        let image = Self { entrypoint: vec![inside.display().to_string()], ..Self::default() };
        image.file(path, inside).host_folders(&LIBRARIES)
    }

    /// The tools of this machine, without an entry point: a pod brings its command, which is `sh` without one.
    #[must_use]
    pub fn tools() -> Self {
        Self { command: vec!["sh".to_owned()], ..Self::default() }.host_folders(&TOOLS)
    }

    /// A container that does nothing until it is stopped, and is no process.
    #[must_use]
    pub fn pause() -> Self {
        Self::default()
    }

    /// Replaces the entry point.
    #[must_use]
    pub fn entrypoint<T: Into<String>>(mut self, words: impl IntoIterator<Item = T>) -> Self {
        self.entrypoint = words.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the arguments used when a pod has none.
    #[must_use]
    pub fn command<T: Into<String>>(mut self, words: impl IntoIterator<Item = T>) -> Self {
        self.command = words.into_iter().map(Into::into).collect();
        self
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Sets the user and group that processes have unless the pod says otherwise.
    #[must_use]
    pub fn user(mut self, uid: u32, gid: u32) -> Self {
        self.user = (uid, gid);
        self
    }

    /// Shows a file or folder of the host, read-only.
    #[must_use]
    pub fn file(mut self, on_host: impl Into<PathBuf>, inside: impl Into<PathBuf>) -> Self {
        self.files.push((on_host.into(), inside.into()));
        self
    }

    /// Whether its containers are no processes.
    pub(super) fn is_pause(&self) -> bool {
        self.files.is_empty()
    }

    fn host_folders(mut self, folders: &[&str]) -> Self {
        let there = folders.iter().map(Path::new).filter(|path| path.is_dir());
        self.files.extend(there.map(|path| (path.to_owned(), path.to_owned())));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_found_by_what_pods_call_them() {
        let images = Images::new()
            .with("tholepin", Image::program("/opt/tholepin"))
            .with("host:5000/pause:3.0", Image::pause());
        let check = |reference: &str, found: bool| {
            assert_eq!(images.get(reference).is_some(), found, "{reference}");
        };
        check("tholepin", true);
        check("tholepin:latest", true);
        check("tholepin:v1", false);
        check("host:5000/pause:3.0", true);
        check("host:5000/pause", false);
        check("", false);
        assert!(images.get("host:5000/pause:3.0").unwrap().is_pause());
        let program = images.get("tholepin").unwrap();
        assert_eq!(program.entrypoint, ["/tholepin"]);
        assert!(!program.is_pause());
    }
}
