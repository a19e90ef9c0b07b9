//! Kubeconfig files, checked before kube reads them whole.
//!
//! In: a path, or the usual places. Out: nothing, or why a file is not read. Never: a read of more than its first
//! bytes, or of a pipe or a device, which have no end.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The greatest size of a kubeconfig, enough for thousands of clusters.
const LIMIT_BYTES: u64 = 16 << 20;

/// The file without content, by which people say that they want no kubeconfig.
const NOTHING: &str = "/dev/null";

/// The token of a pod.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Checks a file.
///
/// # Errors
/// When the file is not a regular one, is too large, or is UTF-16 with half a character at its end, where kube 5.0
/// panics.
pub(super) fn check(path: &Path) -> Result<(), String> {
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() && path != Path::new(NOTHING) => {
            Err("it is not a regular file".to_owned())
        }
        Ok(found) if found.len() > LIMIT_BYTES => {
            Err(format!("it has {} bytes; at most {LIMIT_BYTES} are read", found.len()))
        }
        Ok(found) if found.len() % 2 == 1 && is_utf16(path) => {
            Err("it begins as UTF-16 text and has an odd number of bytes".to_owned())
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err("there is no such file".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether the file begins with a byte-order mark of UTF-16.
fn is_utf16(path: &Path) -> bool {
    let mut mark = [0; 2];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut mark));
    read.is_ok() && matches!(mark, [0xFF, 0xFE] | [0xFE, 0xFF])
}

/// The files that are read when none is named: those in `KUBECONFIG`, else `~/.kube/config`.
pub(super) fn usual(variable: Option<&OsStr>) -> Vec<PathBuf> {
    match variable {
        Some(paths) => std::env::split_paths(paths).filter(|path| !path.as_os_str().is_empty()).collect(),
        None => std::env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect(),
    }
}

/// Why there is no configuration at all, if that is so: no file where it is usual, and no pod.
pub(super) fn absent(files: &[PathBuf]) -> Option<String> {
    let missing = files.iter().all(|file| !file.exists()) && !Path::new(SERVICE_ACCOUNT).exists();
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let places =
        if files.is_empty() { "no home directory".to_owned() } else { format!("no {}", files.join(", ")) };
    missing.then(|| {
        format!(
            "{places}; set KUBECONFIG or give --kubeconfig FILE; without a cluster try: tholepin simulate"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_a_sane_size_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let [good, large, pipe, wide, cut] =
            ["good", "large", "pipe", "wide", "cut"].map(|name| dir.path().join(name));
        std::fs::write(&good, "kind: Config!").unwrap();
        std::fs::write(&wide, b"\xFF\xFEa\0").unwrap();
        std::fs::write(&cut, b"\xFE\xFF\0a\0").unwrap();
        std::fs::File::create(&large).unwrap().set_len(LIMIT_BYTES + 1).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        let no_file = Err("it is not a regular file".to_owned());
        for (path, wanted) in [
            (good.as_path(), Ok(())),
            (&dir.path().join("missing"), Err("there is no such file".to_owned())),
            (Path::new(NOTHING), Ok(())),
            (&pipe, no_file.clone()),
            (Path::new("/dev/zero"), no_file.clone()),
            (dir.path(), no_file),
            (&wide, Ok(())),
            (&cut, Err("it begins as UTF-16 text and has an odd number of bytes".to_owned())),
            (&large, Err("it has 16777217 bytes; at most 16777216 are read".to_owned())),
        ] {
            assert_eq!(check(path), wanted, "{}", path.display());
        }
    }

    #[test]
    fn without_any_configuration_one_line_says_so() {
        let missing = PathBuf::from("/nowhere/.kube/config");
        let wanted = "no /nowhere/.kube/config; set KUBECONFIG or give --kubeconfig FILE; without a cluster try: tholepin simulate";
        if !Path::new(SERVICE_ACCOUNT).exists() {
            assert_eq!(absent(&[missing]).as_deref(), Some(wanted));
        }
        assert_eq!(absent(&[PathBuf::from("/dev/null")]), None);
    }

    #[test]
    fn kubeconfig_can_name_several_files() {
        let paths = |text: &str| usual(Some(OsStr::new(text)));
        assert_eq!(paths("/a::/b"), [Path::new("/a"), Path::new("/b")]);
        assert!(paths("").is_empty());
    }
}
