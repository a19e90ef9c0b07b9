//! What a container says, in the kubelet's log format: in go the ends of pipes, out come lines `TIME STREAM TAG TEXT`,
//! where the tag is `P` for a part of a long line and `F` for its end.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, PipeReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The longest part of a line.
const PART: u64 = 16 << 10;

/// A log file; without one everything said is lost.
#[derive(Debug)]
pub(crate) struct Log(Option<(PathBuf, Mutex<File>)>);

impl Log {
    /// Creates the file or goes on with it.
    pub(crate) fn new(path: Option<&Path>) -> io::Result<Self> {
        Ok(Self(match path {
            Some(path) => Some((path.to_owned(), Mutex::new(open(path)?))),
            None => None,
        }))
    }

    /// Goes on in a new file: the old one was moved away.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        if let Some((path, file)) = &self.0 {
            *file.lock().unwrap_or_else(PoisonError::into_inner) = open(path)?;
        }
        Ok(())
    }

    /// Copies a pipe to the log until the last writer has closed it.
    pub(crate) fn follow(&self, stream: &str, pipe: PipeReader) -> io::Result<()> {
        let mut pipe = BufReader::new(pipe);
        let mut part = Vec::new();
        while (&mut pipe).take(PART).read_until(b'\n', &mut part)? > 0 {
            let whole = part.last() == Some(&b'\n');
            if whole {
                part.pop();
            }
            let tag = if whole { "F" } else { "P" };
            let mut line = format!("{} {stream} {tag} ", jiff::Timestamp::now()).into_bytes();
            line.append(&mut part);
            line.push(b'\n');
            if let Some((_, file)) = &self.0 {
                file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)?;
            }
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn lines_long_lines_and_a_last_one_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = Log::new(Some(&path)).unwrap();
        let said = format!("a\n\n{}\nend", "x".repeat(PART as usize + 1));
        let (reader, mut writer) = io::pipe().unwrap();
        let speaker = std::thread::spawn(move || writer.write_all(said.as_bytes()).unwrap());
        log.follow("stdout", reader).unwrap();
        speaker.join().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<(&str, usize)> = text
            .lines()
            .map(|line| {
                let (time, rest) = line.split_once(' ').unwrap();
                time.parse::<jiff::Timestamp>().unwrap();
                let rest = rest.strip_prefix("stdout ").unwrap();
                (&rest[..1], rest.len() - 2)
            })
            .collect();
        assert_eq!(lines, [("F", 1), ("F", 0), ("P", PART as usize), ("F", 1), ("P", 3)]);

        fs::rename(&path, dir.path().join("old")).unwrap();
        log.reopen().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
    }
}
