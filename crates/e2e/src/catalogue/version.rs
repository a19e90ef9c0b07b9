//! Versions of what is tested.

use anyhow::{Context as _, ensure};
use runtime::client::exec;

use crate::fixture::Fixture;
use crate::need::Need::{Exec, Operator};
use crate::pods::first_container;
use crate::spec::{Result, Spec};

/// The largest answer.
const ANSWER_BYTES: usize = 64 << 10;
/// The commands that tell a version: of our image, and of the Go operator's.
const COMMANDS: [&[&str]; 2] =
    [&["/tholepin", "--version"], &["/bin/cat", "/usr/local/share/buildinfo.json"]];

pub(super) fn specs() -> Vec<Spec> {
    vec![
        Spec::new(
            "85791",
            1,
            "the operator's program tells its version, and the API server its own",
            versions,
        )
        .labels(&["versioncheck", "feature:config"])
        .needs([Operator, Exec]),
    ]
}

async fn versions(f: Fixture) -> Result {
    let server = f.cluster().client.apiserver_version().await?;
    ensure!(has_version(&server.git_version), "the API server says {:?}", server.git_version);
    let manager = f.manager().await?;
    let pod = f.pods_of(&manager).await?.into_iter().next().context("the operator has no pod")?;
    let container = first_container(&pod).context("the operator's pod has no container")?;
    let mut said = Vec::new();
    for command in COMMANDS {
        match exec(&f.cluster().client, container, command, ANSWER_BYTES).await {
            Ok(text) => said.push(text),
            Err(error) => said.push(runtime::client::brief(&error)),
        }
        if said.last().is_some_and(|text| has_version(text)) {
            return Ok(());
        }
    }
    Err(anyhow::anyhow!("the operator's program tells no version: {}", said.join("; ")))
}

/// Whether a text has three numbers with dots between.
fn has_version(text: &str) -> bool {
    let words = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    words.into_iter().any(|word| word.split('.').filter(|part| !part.is_empty()).count() >= 3)
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_have_three_numbers() {
        let table = [
            ("tholepin 0.1.0\n", true),
            ("v1.36.0-rc.1", true),
            (r#"{"branch":"release-4.18","version":"4.18.999"}"#, true),
            ("4.18", false),
            ("no version...", false),
            ("", false),
        ];
        for (text, wanted) in table {
            assert_eq!(super::has_version(text), wanted, "{text}");
        }
    }
}
