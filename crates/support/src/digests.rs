//! `getdigests`: the digests of the scheduler's images that an operator trusts.
//!
//! In: `registry/image:vX.Y` of the current and the previous channel, optionally of an extended one; `skopeo`, which
//! knows registries and their secrets. Out: `{"current_channel":[...],"prev_channel_last":...,"eus_channel_last":...}`.
//! Never: an incomplete list; any failure is an error.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use runtime::goflag::{Flag, Kind};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::call::{self, Call};

const FLAGS: [Flag; 5] = [
    text("current-url", "the current channel's image, as registry/image:vX.Y"),
    text("prev-url", "the previous channel's image, as registry/image:vX.Y"),
    text("eus-url", "the extended update channel's image, as registry/image:vX.Y"),
    text("pull-secret", "file with the registry's credentials"),
    text("output", "file to write to instead of standard output"),
];

const fn text(name: &'static str, help: &'static str) -> Flag {
    Flag { name, kind: Kind::Text, default: "", help }
}

/// An image of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Channel {
    /// The image without its tag.
    image: String,
    /// The tag `vX.Y`.
    tag: String,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Digests {
    current_channel: Vec<String>,
    prev_channel_last: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    eus_channel_last: String,
}

#[derive(Deserialize)]
struct Tags {
    #[serde(rename = "Tags", default)]
    tags: Vec<String>,
}

/// Runs the tool.
///
/// # Errors
/// When a flag is missing or wrong, `skopeo` is missing or fails, or the output cannot be written.
pub async fn run(call: &Call) -> anyhow::Result<ExitCode> {
    let flags = match call.flags(&[&FLAGS], false) {
        Ok(flags) => flags,
        Err(code) => return Ok(code),
    };
    let given = |name: &'static str| flags.text(name).filter(|value| !value.is_empty());
    let channel = |name: &'static str| given(name).map(|url| Channel::parse(name, url)).transpose();
    let current = channel("current-url")?.context("-current-url is required")?;
    let previous = channel("prev-url")?.context("-prev-url is required")?;
    let (extended, secret) = (channel("eus-url")?, given("pull-secret").map(str::to_owned));
    let skopeo = async |words: Vec<String>| skopeo(words, secret.as_deref()).await;
    let digests = digests(&current, &previous, extended.as_ref(), skopeo).await?;
    let json = serde_json::to_string_pretty(&digests)? + "\n";
    match given("output") {
        Some(file) => std::fs::write(Path::new(file), json).with_context(|| file.to_owned())?,
        None => call::print(&json)?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Channel {
    fn parse(flag: &str, url: &str) -> anyhow::Result<Self> {
        let wrong = || format!("-{flag}: {url:?} is not of the form registry/image:vX.Y");
        let (image, tag) = url.rsplit_once(':').with_context(wrong)?;
        let numbers: Vec<&str> = tag.strip_prefix('v').with_context(wrong)?.split('.').collect();
        let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let good = numbers.len() == 2 && numbers.iter().all(is_number);
        let named =
            image.split_once('/').is_some_and(|(registry, name)| !registry.is_empty() && !name.is_empty());
        if !good || !named || image.contains("://") || image.contains(char::is_whitespace) {
            bail!(wrong());
        }
        Ok(Self { image: image.to_owned(), tag: tag.to_owned() })
    }

    fn at(&self, tag: &str) -> Vec<String> {
        let words = ["inspect", "--format", "{{.Digest}}"];
        words.map(str::to_owned).into_iter().chain([format!("docker://{}:{tag}", self.image)]).collect()
    }
}

async fn digests(
    current: &Channel,
    previous: &Channel,
    extended: Option<&Channel>,
    skopeo: impl AsyncFn(Vec<String>) -> anyhow::Result<String>,
) -> anyhow::Result<Digests> {
    let list = vec!["list-tags".to_owned(), format!("docker://{}", current.image)];
    let answer = skopeo(list).await.with_context(|| format!("listing tags of {}", current.image))?;
    let tags: Tags = serde_json::from_str(&answer).context("reading the answer of skopeo list-tags")?;
    let tags = filter(&tags.tags, &current.tag);
    if tags.is_empty() {
        bail!("{} has no tags that begin with {}.", current.image, current.tag);
    }
    let digest = async |channel: &Channel, tag: &str| {
        let digest = skopeo(channel.at(tag)).await;
        digest.with_context(|| format!("inspecting {}:{tag}", channel.image))
    };
    let mut digests = Digests::default();
    for tag in tags {
        let digest = digest(current, tag).await?;
        if !digests.current_channel.contains(&digest) {
            digests.current_channel.push(digest);
        }
    }
    digests.prev_channel_last = digest(previous, &previous.tag).await?;
    if let Some(extended) = extended {
        digests.eus_channel_last = digest(extended, &extended.tag).await?;
    }
    Ok(digests)
}

/// The image tags of a channel, without those of source images.
fn filter<'a>(tags: &'a [String], channel: &str) -> Vec<&'a str> {
    let prefix = format!("{channel}.");
    let tags = tags.iter().map(|tag| tag.trim());
    tags.filter(|tag| tag.starts_with(&prefix) && !tag.ends_with("-source")).collect()
}

/// Runs `skopeo` and returns its output.
async fn skopeo(words: Vec<String>, secret: Option<&str>) -> anyhow::Result<String> {
    let mut words = words.into_iter();
    let verb = words.next().unwrap_or_default();
    let mut command = Command::new("skopeo");
    command.arg(&verb);
    if let Some(file) = secret {
        command.args(["--authfile", file]);
    }
    let output = command.args(words).output().await;
    let output = output.context("running skopeo, which must be installed and in PATH")?;
    if !output.status.success() {
        bail!("skopeo {verb}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout).context("skopeo's answer")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_channel() {
        // U031.
        let check = |url: &str, wanted: Option<(&str, &str)>| {
            let channel = Channel::parse("current-url", url);
            let got = channel.as_ref().ok().map(|c| (c.image.as_str(), c.tag.as_str()));
            assert_eq!(got, wanted, "{url}");
        };
        check("r.example/a/b:v4.20", Some(("r.example/a/b", "v4.20")));
        check("r.example:5000/a:v5.0", Some(("r.example:5000/a", "v5.0")));
        for wrong in [
            "",
            "a",
            "r/a",
            "r/a:4.20",
            "r/a:v4",
            "r/a:v4.20.1",
            "r/a:v4.x",
            "r/a:v.20",
            "r/a:v4.",
            "a:v4.20",
            "/a:v4.20",
            "docker://r/a:v4.20",
            "r/a b:v4.20",
            "r:5000/a",
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn tags_are_those_of_the_channel() {
        // U031.
        let tags = [" v4.20.0 ", "v4.20.1", "v4.20.1-source", "v4.19.5", "v4.200.0", "v4.20", "x"];
        let tags = tags.map(str::to_owned);
        assert_eq!(filter(&tags, "v4.20"), ["v4.20.0", "v4.20.1"]);
        assert_eq!(filter(&tags, "v4.21"), [""; 0]);
    }

    /// Answers by the last word of the command.
    async fn ask(extended: bool, answers: &[(&str, Option<&str>)]) -> Result<Digests, String> {
        let channel = |tag: &str| Channel { image: "r/a".to_owned(), tag: tag.to_owned() };
        let skopeo = async |words: Vec<String>| {
            let last = words.last().unwrap().strip_prefix("docker://r/a").unwrap();
            let known = answers.iter().find(|(of, _)| *of == last).and_then(|(_, answer)| *answer);
            known.map(str::to_owned).context("not there")
        };
        let extended = extended.then(|| channel("v4.18"));
        let made = digests(&channel("v4.20"), &channel("v4.19"), extended.as_ref(), skopeo).await;
        made.map_err(|error| format!("{error:#}"))
    }

    #[tokio::test]
    async fn digests_are_unique_and_errors_are_fatal() {
        // U031.
        let list = r#"{"Tags":["v4.20.0","v4.20.0-source","v4.20.1","v4.20.2"]}"#;
        let all = [
            ("", Some(list)),
            (":v4.20.0", Some("a")),
            (":v4.20.1", Some("b")),
            (":v4.20.2", Some("a")),
            (":v4.19", Some("c")),
            (":v4.18", Some("d")),
        ];
        let wanted = Digests {
            current_channel: vec!["a".to_owned(), "b".to_owned()],
            prev_channel_last: "c".to_owned(),
            eus_channel_last: String::new(),
        };
        assert_eq!(ask(false, &all).await.as_ref(), Ok(&wanted));
        let with = Digests { eus_channel_last: "d".to_owned(), ..wanted };
        assert_eq!(ask(true, &all).await.as_ref(), Ok(&with));
        assert!(!serde_json::to_string(&ask(false, &all).await.unwrap()).unwrap().contains("eus"));
        for at in 0..all.len() {
            let mut some = all;
            some[at].1 = None;
            let error = ask(true, &some).await.unwrap_err();
            assert!(
                error.starts_with(if at == 0 { "listing tags of r/a" } else { "inspecting r/a:" }),
                "{error}"
            );
        }
        assert!(
            ask(false, &[("", Some(r#"{"Tags":["v4.19.0"]}"#))]).await.unwrap_err().contains("has no tags")
        );
        assert!(ask(false, &[("", Some("tags"))]).await.unwrap_err().contains("list-tags"));
    }
}
