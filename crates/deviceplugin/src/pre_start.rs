//! What is done with devices before a container with them starts.
//!
//! In: a program or a file, devices. Out: it was run for each, or written to; or why not. Never: longer than the configuration says.

use std::process::Stdio;

use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStderr, Command};

use crate::config::PreStart;

/// Where the id of a device goes.
const ID: &str = "{id}";
/// Of what a program says when it fails.
const MAX_WORDS: usize = 300;

/// Prepares the devices, one after the other.
///
/// # Errors
/// Says for which device and why.
pub async fn run(config: &PreStart, devices: &[String]) -> Result<(), String> {
    let mut unique: Vec<&String> = devices.iter().collect();
    unique.sort_unstable();
    unique.dedup();
    let all = async {
        for device in unique {
            one(config, device).await.map_err(|reason| format!("device {device:?}: {reason}"))?;
        }
        Ok(())
    };
    let late = |_| Err(format!("not done within {:?}", config.timeout));
    tokio::time::timeout(config.timeout, all).await.unwrap_or_else(late)
}

async fn one(config: &PreStart, device: &str) -> Result<(), String> {
    if let Some(reset) = &config.reset {
        if device.contains('/') || device == ".." {
            return Err(format!("its id cannot be part of {reset}"));
        }
        let path = reset.replace(ID, device);
        // Not blocking the others: a reset may take a second.
        let failed = |error: std::io::Error| format!("{path}: {error}");
        let mut options = tokio::fs::OpenOptions::new();
        let mut file = options.write(true).open(&path).await.map_err(failed)?;
        use tokio::io::AsyncWriteExt as _;
        file.write_all(b"1").await.map_err(failed)?;
        return file.flush().await.map_err(failed);
    }
    let mut words = config.command.iter().map(|word| word.replace(ID, device));
    let program = words.next().ok_or("there is no command")?;
    let mut command = Command::new(&program);
    command
        .args(words)
        .env("DEVICE_ID", device)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let failed = |error: std::io::Error| format!("{program}: {error}");
    let mut child = command.spawn().map_err(failed)?;
    let stderr = child.stderr.take();
    let (status, said) = tokio::join!(child.wait(), first_words(stderr));
    let status = status.map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{program}: {status}: {said:?}"))
}

/// What a program says first; the rest is read, so that it can go on, and dropped.
async fn first_words(stderr: Option<ChildStderr>) -> String {
    let Some(mut stderr) = stderr else { return String::new() };
    let mut said = Vec::new();
    // Of its words nothing depends.
    let _ = (&mut stderr).take(4 * MAX_WORDS as u64).read_to_end(&mut said).await;
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&said).trim().chars().take(MAX_WORDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn config(command: &[&str], reset: Option<String>) -> PreStart {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        PreStart { command, reset, timeout: Duration::from_secs(20) }
    }

    #[tokio::test]
    async fn each_device_is_prepared_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let ids = ["b".to_owned(), "a".to_owned(), "b".to_owned()];
        ids.iter().for_each(|id| std::fs::write(path(id), "").unwrap());
        let reset = path("{id}").display().to_string();
        run(&config(&[], Some(reset.clone())), &ids).await.unwrap();
        assert_eq!([path("a"), path("b")].map(|path| std::fs::read_to_string(path).unwrap()), ["1", "1"]);
        let log = path("log").display().to_string();
        let script = format!("echo {{id}} $DEVICE_ID >> {log}");
        run(&config(&["/bin/sh", "-c", &script], None), &ids).await.unwrap();
        assert_eq!(std::fs::read_to_string(log).unwrap(), "a a\nb b\n");

        let error = run(&config(&["/bin/sh", "-c", "echo broken {id} >&2; exit 3"], None), &ids).await;
        assert_eq!(error.unwrap_err(), "device \"a\": /bin/sh: exit status: 3: \"broken a\"");
        let error = run(&config(&[], Some(reset)), &["c".to_owned()]).await.unwrap_err();
        assert!(error.ends_with("c: No such file or directory (os error 2)"), "{error}");
    }

    #[tokio::test]
    async fn a_program_may_say_much() {
        let script =
            "i=0; while [ $i -lt 20000 ]; do echo 'oh no, oh no, oh no' >&2; i=$((i+1)); done; exit 1";
        let error = run(&config(&["/bin/sh", "-c", script], None), &["a".to_owned()]).await.unwrap_err();
        assert!(error.contains("exit status: 1") && error.contains("oh no") && error.len() < 500, "{error}");
    }

    #[tokio::test]
    async fn it_ends_in_time() {
        let config = PreStart { timeout: Duration::from_millis(50), ..config(&["/bin/sleep", "1000"], None) };
        let error = run(&config, &["a".to_owned()]).await.unwrap_err();
        assert_eq!(error, "not done within 50ms");
    }
}
