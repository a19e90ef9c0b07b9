//! Prepares devices before a container with them starts.
//!
//! In: a program or a file, and devices. Out: the program ran for each device, or `1` was written for each; or why not.
//! Never: more time than the configuration allows.

use std::process::Stdio;

use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStderr, Command};

use crate::config::PreStart;

/// The placeholder for a device's id.
const ID: &str = "{id}";
/// How much of a failed program's standard error is reported.
const MAX_STDERR_CHARS: usize = 300;

/// Prepares the devices one after the other, each once. Cancelled after the configured timeout; a program that still
/// runs is killed.
///
/// # Errors
/// Names the device and the reason.
pub async fn run(config: &PreStart, devices: &[String]) -> Result<(), String> {
    let mut unique: Vec<&String> = devices.iter().collect();
    unique.sort_unstable();
    unique.dedup();
    let all = async {
        for device in unique {
            prepare_device(config, device).await.map_err(|reason| format!("device {device:?}: {reason}"))?;
        }
        Ok(())
    };
    let late = |_| Err(format!("not finished within {:?}", config.timeout));
    tokio::time::timeout(config.timeout, all).await.unwrap_or_else(late)
}

async fn prepare_device(config: &PreStart, device: &str) -> Result<(), String> {
    if let Some(reset) = &config.reset {
        if device.contains('/') || device == ".." {
            return Err(format!("the id cannot be part of {reset}"));
        }
        let path = reset.replace(ID, device);
        // Asynchronous, since a reset may take a second and others must not wait.
        let failed = |error: std::io::Error| format!("{path}: {error}");
        let mut options = tokio::fs::OpenOptions::new();
        let mut file = options.write(true).open(&path).await.map_err(failed)?;
        use tokio::io::AsyncWriteExt as _;
        file.write_all(b"1").await.map_err(failed)?;
        return file.flush().await.map_err(failed);
    }
    let mut words = config.command.iter().map(|word| word.replace(ID, device));
    let program = words.next().ok_or("no command is configured")?;
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
    let (status, stderr_start) = tokio::join!(child.wait(), read_start(stderr));
    let status = status.map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{program}: {status}: {stderr_start:?}"))
}

/// Reads the start of a program's standard error. The rest is read and dropped, so that the program can go on.
async fn read_start(stderr: Option<ChildStderr>) -> String {
    let Some(mut stderr) = stderr else { return String::new() };
    let mut stderr_start = Vec::new();
    // An error here only shortens the reason.
    let _ = (&mut stderr).take(4 * MAX_STDERR_CHARS as u64).read_to_end(&mut stderr_start).await;
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&stderr_start).trim().chars().take(MAX_STDERR_CHARS).collect()
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
    async fn long_standard_error_is_shortened() {
        let script =
            "i=0; while [ $i -lt 20000 ]; do echo 'oh no, oh no, oh no' >&2; i=$((i+1)); done; exit 1";
        let error = run(&config(&["/bin/sh", "-c", script], None), &["a".to_owned()]).await.unwrap_err();
        assert!(error.contains("exit status: 1") && error.contains("oh no") && error.len() < 500, "{error}");
    }

    #[tokio::test]
    async fn the_timeout_is_enforced() {
        let config = PreStart { timeout: Duration::from_millis(50), ..config(&["/bin/sleep", "1000"], None) };
        let error = run(&config, &["a".to_owned()]).await.unwrap_err();
        assert_eq!(error, "not finished within 50ms");
    }
}
