//! A connection tried, from inside of a pod: how network policies are tested.
//!
//! In: an address. Out: a word that says how the try ended. Never: a byte sent, or a name looked up.
//!
//! The suite runs this program in a container of ours (the hidden command `dial`), and `curl` in others.

use std::fmt;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use kube::Client;
use runtime::client::{Container, exec};
use runtime::stdout::print;
use tokio::net::TcpStream;

use crate::spec::Skip;

/// The longest wait for an answer. A network that drops packets gives none.
const LIMIT: Duration = Duration::from_secs(3);
/// The most bytes of an answer.
const MOST: usize = 4096;

/// Try a connection, and say how it ended: open, refused, silent or unreachable.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Address and port
    address: SocketAddr,
}

/// How a try ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was accepted.
    Open,
    /// The way is open, and nothing listens at its end.
    Refused,
    /// The way is closed.
    Closed(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("open"),
            Self::Refused => f.write_str("refused"),
            Self::Closed(why) => write!(f, "closed: {why}"),
        }
    }
}

/// Tries a connection from here.
async fn dial(address: SocketAddr, limit: Duration) -> Outcome {
    match tokio::time::timeout(limit, TcpStream::connect(address)).await {
        Ok(Ok(_)) => Outcome::Open,
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => Outcome::Refused,
        Ok(Err(error)) => Outcome::Closed(error.to_string()),
        Err(_) => Outcome::Closed("no answer".to_owned()),
    }
}

/// Runs the command.
///
/// # Errors
/// When standard output is closed.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    print(&format!("{}\n", dial(args.address, LIMIT).await))?;
    Ok(ExitCode::SUCCESS)
}

/// Tries a connection from inside of a container: by our program, else by curl.
///
/// # Errors
/// [`Skip`] where it has neither; else when the command cannot be run.
pub async fn from(client: &Client, container: Container<'_>, address: SocketAddr) -> anyhow::Result<Outcome> {
    let text = address.to_string();
    match exec(client, container, &["/tholepin", "dial", &text], MOST).await {
        Ok(said) => return read(said.trim()),
        Err(error) if !is_missing(&error) => return Err(error.into()),
        Err(_) => {}
    }
    let seconds = LIMIT.as_secs().to_string();
    let words =
        ["curl", "-skv", "--noproxy", "*", "-m", &seconds, "-o", "/dev/null", &format!("https://{text}")];
    match exec(client, container, &words, MOST).await {
        Ok(_) => Ok(Outcome::Open),
        Err(error) if is_missing(&error) => {
            Err(Skip(format!("/tholepin or curl in container {} of pod {}", container.name, container.pod))
                .into())
        }
        Err(kube::Error::Api(status)) => by_curl(&status.message),
        Err(error) => Err(error.into()),
    }
}

/// The word of our own program.
fn read(said: &str) -> anyhow::Result<Outcome> {
    Ok(match (said, said.strip_prefix("closed: ")) {
        ("open", _) => Outcome::Open,
        ("refused", _) => Outcome::Refused,
        (_, Some(why)) => Outcome::Closed(why.to_owned()),
        _ => bail!("the command dial said {said:?}"),
    })
}

/// The kubelet's words about a curl that failed: its exit code, and what it wrote.
fn by_curl(message: &str) -> anyhow::Result<Outcome> {
    let code = message.split_once("exited with ").and_then(|(_, rest)| rest.split_once(':'));
    Ok(match code.map(|(code, _)| code) {
        Some("28") => Outcome::Closed("no answer".to_owned()),
        Some("7") if message.contains("Connection refused") => Outcome::Refused,
        Some("7") => Outcome::Closed("no connection".to_owned()),
        // The connection stands; TLS or HTTP does not.
        Some("35" | "52" | "56") => Outcome::Open,
        _ => bail!("curl: {message}"),
    })
}

/// Whether a container has no such program, in the words of container runtimes.
fn is_missing(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    ["executable file not found", "no such file or directory"]
        .iter()
        .any(|words| status.message.contains(words))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[tokio::test]
    async fn an_address_that_listens_is_open_and_another_refused() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(dial(address, LIMIT).await, Outcome::Open);
        drop(listener);
        assert_eq!(dial(address, LIMIT).await, Outcome::Refused);
    }

    #[test]
    fn what_is_said_is_read_again() {
        for outcome in [Outcome::Open, Outcome::Refused, Outcome::Closed("no answer".to_owned())] {
            assert_eq!(read(&outcome.to_string()).unwrap(), outcome);
        }
        assert!(read("curl: not found").is_err());
    }

    #[test]
    fn curls_exit_codes_are_outcomes() {
        for (message, wanted) in [
            (
                "command 'curl' exited with 7: connect to 10.0.0.1 port 8081 failed: Connection refused",
                "Ok(Refused)",
            ),
            (
                "command 'curl' exited with 7: connect failed: No route to host",
                "Ok(Closed(\"no connection\"))",
            ),
            ("command 'curl' exited with 28: ", "Ok(Closed(\"no answer\"))"),
            ("command 'curl' exited with 35: wrong version number", "Ok(Open)"),
            ("command 'curl' exited with 2: ", r#"Err("curl: command 'curl' exited with 2: ")"#),
            ("container not found", r#"Err("curl: container not found")"#),
        ] {
            let read = by_curl(message).map_err(|error| error.to_string());
            assert_eq!(format!("{read:?}"), wanted, "{message}");
        }
    }
}
