//! The changes of a deployment as a diff.
//!
//! In: parts. Out: for each object the difference between the cluster and the API server's answer to a dry run. Never:
//! a change.

use kube::Client;
use runtime::client;
use serde_json::Value;
use similar::TextDiff;
use tokio_util::sync::CancellationToken;

use super::decide::{decide, merged, refusal};
use super::run::{Halt, Run};
use super::step::Step;
use super::{DryRun, Error, Settings};
use crate::part::Part;
use objects::Object;
use objects::client::{CallError, Force};
use objects::decision::Decision;
use objects::equality::content;

/// The differences between a cluster and the parts in the order of deployment: a unified diff of YAML for each object
/// that would change. Objects that a deployment would delete are last.
///
/// # Errors
/// When an object cannot be read, or the API server would reject it.
pub async fn diff(
    client: &Client,
    parts: &[Part],
    settings: &Settings,
    cancel: &CancellationToken,
) -> Result<Vec<String>, Error> {
    let settings = Settings { dry_run: Some(DryRun::Server), ..settings.clone() };
    let mut silence = |_: &Step<'_>| {};
    let mut run = Run::new(client, &settings, &mut silence, cancel);
    let mut differences = Vec::new();
    let ended = Box::pin(collect(&mut run, parts, &mut differences)).await;
    match ended {
        Ok(()) => Ok(differences),
        Err(Halt::Failed(error)) => Err(error),
        Err(Halt::Cancelled) => Err(Error::Cancelled {
            done: differences.len(),
            all: parts.iter().map(|part| part.objects().len()).sum(),
            next: None,
        }),
    }
}

async fn collect(run: &mut Run<'_>, parts: &[Part], differences: &mut Vec<String>) -> Result<(), Halt> {
    for part in parts {
        for object in part.objects() {
            let live = run.get(object).await?;
            if let Some(after) = after(run, object, live.as_ref()).await? {
                differences.extend(unified(object, live.as_ref(), Some(&after))?);
            }
        }
    }
    run.prune(parts).await?;
    for (_, object) in &run.outcome.pruned {
        differences.extend(unified(object, Some(object.body()), None)?);
    }
    Ok(())
}

/// The object after a deployment; `None` if it is not ours to change.
async fn after(run: &mut Run<'_>, object: &Object, live: Option<&Value>) -> Result<Option<Value>, Halt> {
    let (object, force) = match decide(object, live, run.settings.adopt) {
        Decision::Refuse { owner, lacks } => return Err(refusal(object, owner, lacks).into()),
        Decision::Leave | Decision::Remove { .. } => return Ok(None),
        // The old object is in the way, so the API server cannot be asked for the new one.
        Decision::Recreate { .. } | Decision::Await => return Ok(Some(object.body().clone())),
        Decision::Create => (object.clone(), Force::No),
        Decision::Change { .. } => (merged(object, live), Force::Yes),
        Decision::Adopt => (object.clone(), Force::Yes),
    };
    match run.api_server.apply(&object, force).await {
        Ok(answer) => Ok(Some(answer.body)),
        // The namespace or kind does not exist yet.
        Err(stop) if stop.is(client::is_not_found) => Ok(Some(object.body().clone())),
        Err(stop @ CallError::Failed(_))
            if live.is_some() && stop.is(|error| client::code(error) == Some(422)) =>
        {
            Ok(Some(object.body().clone()))
        }
        Err(stop) => Err(Halt::of("applying", &object, stop)),
    }
}

/// The difference; `None` if there is none.
fn unified(object: &Object, before: Option<&Value>, after: Option<&Value>) -> Result<Option<String>, Halt> {
    let yaml = |value: Option<&Value>| match value {
        None => Ok(String::new()),
        Some(value) => runtime::yaml::write(&content(value)).map_err(|error| {
            let (object, error) = (object.to_string(), error.to_string());
            Halt::Failed(Error::Call { doing: "writing", object, error })
        }),
    };
    let (before, after) = (yaml(before)?, yaml(after)?);
    if before == after {
        return Ok(None);
    }
    let diff = TextDiff::from_lines(&before, &after);
    let side = |side: &str| format!("{side}/{object}");
    Ok(Some(diff.unified_diff().context_radius(3).header(&side("cluster"), &side("deployed")).to_string()))
}
