//! One bad call: words, files, variables, standard input.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use runtime::random::Random;

use super::MEMORY_KIB;
use super::document::Kind;
use super::entry::{ENTRIES, Entry, Grammar, Input};
use super::judge::Outcome;
use super::value::{chance, hostile};

/// The call. Its files are in the folder that is the process's working directory.
pub(super) struct Case {
    pub(super) seed: u64,
    pub(super) entry: Entry,
    words: Vec<OsString>,
    kubeconfig: Option<OsString>,
    stdin: Stdin,
    dir: tempfile::TempDir,
}

enum Stdin {
    Nothing,
    File,
    Endless,
}

/// The file that is standard input.
const STDIN: &str = "stdin";

impl Case {
    /// The call with this seed; the port is that of a server that answers nonsense.
    pub(super) fn generate(seed: u64, grammar: &Grammar, port: u16) -> Self {
        let random = &mut Random::seeded(seed);
        let entry = ENTRIES[usize::try_from(random.below(ENTRIES.len() as u64)).unwrap()];
        let dir = tempfile::tempdir().unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("fifo"), rustix::fs::Mode::RWXU).unwrap();
        let mut case = Self { seed, entry, words: Vec::new(), kubeconfig: None, stdin: Stdin::Nothing, dir };
        case.words.extend(entry.words.split_whitespace().map(OsString::from));
        for (number, input) in entry.inputs.iter().enumerate() {
            case.input(number, *input, random);
        }
        let flags = grammar.of(entry.words);
        let most = if entry.inputs.is_empty() { 3 } else { 1 };
        for _ in 0..random.below(most + 1) {
            if let Some(flag) = flags.get(usize::try_from(random.below(flags.len().max(1) as u64)).unwrap()) {
                let value = hostile(random, port);
                if chance(random, 50) {
                    case.words.extend([flag.into(), value]);
                } else {
                    let mut word = OsString::from(format!("{flag}="));
                    word.push(value);
                    case.words.push(word);
                }
            }
        }
        if chance(random, 10) {
            case.words.push(hostile(random, port));
        }
        if entry.cluster {
            case.kubeconfig = Some(case.connect(random, port));
        }
        case
    }

    /// Makes one input.
    fn input(&mut self, number: usize, input: Input, random: &mut Random) {
        let name = match input {
            Input::Stdin(kind) => {
                self.stdin = if chance(random, 10) { Stdin::Endless } else { Stdin::File };
                fs::write(self.dir.path().join(STDIN), kind.wrong(random)).unwrap();
                return;
            }
            Input::Flag(_, kind) | Input::Argument(kind) => self.path(number, kind, random),
        };
        match input {
            Input::Flag(flag, _) if flag.ends_with(':') => self.words.push(format!("{flag}//{name}").into()),
            Input::Flag(flag, _) => self.words.extend([flag.into(), name.into()]),
            _ => self.words.push(name.into()),
        }
    }

    /// A path to something that should be a document of this kind.
    fn path(&self, number: usize, kind: Kind, random: &mut Random) -> String {
        let name = format!("input-{number}");
        let path = self.dir.path().join(&name);
        match random.below(20) {
            0 => return "/dev/zero".to_owned(),
            1 => return "fifo".to_owned(),
            2 => return "missing".to_owned(),
            3 => fs::create_dir(&path).unwrap(),
            4 => fs::write(&path, "").unwrap(),
            5 => std::os::unix::fs::symlink(&name, &path).unwrap(),
            _ => match kind {
                Kind::Folder => fill(&path, Kind::IN_FOLDERS, random),
                Kind::PodResources => fill(&path, Kind::RECORDED, random),
                kind => fs::write(&path, kind.wrong(random)).unwrap(),
            },
        }
        if kind == Kind::PodResources { path.display().to_string() } else { name }
    }

    /// A kubeconfig: of a server that refuses or talks nonsense, or itself wrong.
    fn connect(&self, random: &mut Random, port: u16) -> OsString {
        let port = if chance(random, 30) { 1 } else { port };
        let text = match chance(random, 35) {
            true => Kind::Kubeconfig.wrong(random),
            false => Kind::Kubeconfig.right().into(),
        };
        // No variable of a process holds a NUL, but a file does; the text may not be UTF-8 any more.
        let text = match String::from_utf8(text) {
            Ok(text) => text.replace("PORT", &port.to_string()).into_bytes(),
            Err(error) => error.into_bytes(),
        };
        fs::write(self.dir.path().join("kubeconfig"), text).unwrap();
        let path = self.dir.path().join("kubeconfig");
        match random.below(12) {
            0 => "/dev/zero".into(),
            1 => self.dir.path().join("fifo").into(),
            2 => "".into(),
            _ => path.into(),
        }
    }

    /// Runs it, with a limit of its memory.
    pub(super) fn run(&self) -> Outcome {
        let mut command = Command::new("sh");
        // RLIMIT_DATA: private memory that can be written. More of it is an abort, which is a failure.
        command.args([
            "-c",
            &format!("ulimit -d {MEMORY_KIB} && exec \"$0\" \"$@\""),
            env!("CARGO_BIN_EXE_tholepin"),
        ]);
        command.args(&self.words).current_dir(self.dir.path()).env_clear();
        command.env("HOME", self.dir.path()).env("PATH", "/usr/bin:/bin").env("NODE_NAME", "n1");
        command.env("NODE_ADDRESS", "127.0.0.1");
        if let Some(path) = &self.kubeconfig {
            command.env("KUBECONFIG", path);
        }
        let from = match self.stdin {
            Stdin::Nothing => "/dev/null".into(),
            Stdin::Endless => "/dev/zero".into(),
            Stdin::File => self.dir.path().join(STDIN),
        };
        command.stdin(Stdio::from(fs::File::open(from).unwrap()));
        Outcome::of(command, self.dir.path(), self.entry.daemon)
    }

    /// How to repeat it by hand.
    pub(super) fn describe(&self) -> String {
        let mut text = format!("KUBECONFIG={:?} tholepin", self.kubeconfig);
        for word in &self.words {
            let word = word.to_string_lossy();
            let _ = write!(text, " {:?}", word.chars().take(120).collect::<String>());
        }
        text
    }
}

fn fill(path: &Path, files: &[(&str, Kind)], random: &mut Random) {
    fs::create_dir(path).unwrap();
    for (name, kind) in files {
        let text = if chance(random, 50) { kind.wrong(random) } else { kind.right().into() };
        fs::write(path.join(name), text).unwrap();
    }
    if chance(random, 10) {
        rustix::fs::mkfifoat(rustix::fs::CWD, path.join("a.yaml"), rustix::fs::Mode::RWXU).unwrap();
    }
}
