//! Files as people name them on a command line: regular files, and pipes such as the shell's `<(command)`.
//!
//! In: a path. Out: a reader. Never: a wait without end for the writer of a pipe to come, or a read of a device.
//!
//! A writer that is there may take its time, as in other programs: `kubectl get` of a large cluster does.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

/// The longest wait for the writer of a pipe, and the pause between two looks at it.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// An open file or pipe.
#[derive(Debug)]
pub(super) struct Input {
    file: File,
    patience: Duration,
    /// Whether the end is an end: a pipe whose writer has not come yet has one too.
    has_writer: bool,
}

impl Input {
    /// Opens a regular file or a pipe.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::open_with(path, PATIENCE)
    }

    fn open_with(path: &Path, patience: Duration) -> io::Result<Self> {
        // Opening a pipe would wait for its writer.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_fifo() {
            return Err(io::Error::other("neither a regular file nor a pipe"));
        }
        Ok(Self { file, patience, has_writer: kind.is_file() })
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let ends = Instant::now() + self.patience;
        loop {
            match self.file.read(buffer) {
                Ok(0) if !self.has_writer => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.has_writer = true,
                Ok(read) => {
                    self.has_writer = true;
                    return Ok(read);
                }
                failed => return failed,
            }
            if !self.has_writer && Instant::now() > ends {
                return Err(io::Error::other(format!(
                    "no program wrote to the pipe within {:?}",
                    self.patience
                )));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &Path) -> Result<String, String> {
        let mut text = String::new();
        let input = Input::open_with(path, Duration::from_millis(200));
        let read = input.and_then(|input| input.take(1000).read_to_string(&mut text));
        read.map(|_| text).map_err(|error| error.to_string())
    }

    #[test]
    fn files_and_pipes_are_read_and_nothing_waits_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let [file, pipe, empty] = ["file", "pipe", "empty"].map(|name| dir.path().join(name));
        std::fs::write(&file, "text").unwrap();
        std::fs::write(&empty, "").unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        assert_eq!(text(&file), Ok("text".to_owned()));
        assert_eq!(text(&empty), Ok(String::new()));
        assert_eq!(text(&pipe), Err("no program wrote to the pipe within 200ms".to_owned()));
        let neither = Err("neither a regular file nor a pipe".to_owned());
        assert_eq!(text(Path::new("/dev/zero")), neither);
        assert_eq!(text(dir.path()), neither);
        for silence in [Duration::ZERO, Duration::from_millis(400)] {
            let path = pipe.clone();
            let writer = std::thread::spawn(move || {
                let mut pipe = OpenOptions::new().write(true).open(path).unwrap();
                std::thread::sleep(silence);
                std::io::Write::write_all(&mut pipe, b"late").unwrap();
            });
            assert_eq!(text(&pipe), Ok("late".to_owned()));
            writer.join().unwrap();
        }
    }
}
