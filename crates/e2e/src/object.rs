//! One object of any kind, and waits for what is to become of it.
//!
//! In: an object as its URL names it. Out: the moment in which a condition on it holds. Never: a poll, or a watch that
//! outlives its wait.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::Client;
use kube::api::DynamicObject;
use kube::runtime::watcher::Config;
use runtime::watch::{self, Metrics};
use serde_json::Value;
use tokio::sync::watch::channel;

use crate::cluster::Cluster;
use crate::fixture::Fixture;
use crate::observed::{self, Timeout};
use crate::spec::Result;
use crate::undo::Target;
use crate::waits::Waits;

/// Waits until `test` finds what it looks for in an object, or in its absence; its error says why not yet.
///
/// # Errors
/// When it does not in time.
pub async fn until<T>(
    cluster: &Cluster,
    target: &Target,
    limits: (&str, Duration),
    test: impl FnMut(Option<&DynamicObject>) -> std::result::Result<T, String>,
) -> std::result::Result<T, Timeout> {
    until_by(&cluster.watches, cluster.observer.waits(), target, limits, test).await
}

/// The same with a client for watches, and a place for waits.
///
/// # Errors
/// When it does not in time.
pub async fn until_by<T>(
    watches: &Client,
    waits: &Waits,
    target: &Target,
    (what, limit): (&str, Duration),
    mut test: impl FnMut(Option<&DynamicObject>) -> std::result::Result<T, String>,
) -> std::result::Result<T, Timeout> {
    // Nothing is known before the first list.
    let (sender, mut state) = channel(None::<Option<DynamicObject>>);
    let only = Config::default().fields(&format!("metadata.name={}", target.name));
    let metrics = Metrics::default();
    let watching =
        watch::run_mapped(target.api(watches), &target.plural, only, &metrics, Ok, |event| match event {
            watch::Event::Reset { objects, .. } => {
                sender.send_replace(Some(objects.into_iter().next()));
            }
            watch::Event::Applied(object) => {
                sender.send_replace(Some(Some(object)));
            }
            watch::Event::Deleted(_) | watch::Event::Unreadable { .. } => {
                sender.send_replace(Some(None));
            }
        });
    let waiting = observed::until(&mut state, waits, (what, limit), |state| match state {
        None => Err("it has not been listed".to_owned()),
        Some(object) => test(object.as_ref()),
    });
    tokio::select! {
        never = watching => { let never: Infallible = never; match never {} }
        found = waiting => found,
    }
}

/// Waits until an object is gone, or another one has its name.
///
/// # Errors
/// When it stays.
pub async fn gone(
    cluster: &Cluster,
    (target, uid): (&Target, &str),
    limit: Duration,
) -> std::result::Result<(), Timeout> {
    let what = format!("{} {} is gone", target.kind, target.name);
    until(cluster, target, (&what, limit), |found| match found {
        Some(found) if found.metadata.uid.as_deref() == Some(uid) => Err("it is still there".to_owned()),
        _ => Ok(()),
    })
    .await
}

/// The object as JSON, with which pointers work.
#[must_use]
pub fn value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

impl Fixture {
    /// Waits until `test` finds what it looks for in an object, or in its absence; its error says why not yet.
    ///
    /// # Errors
    /// When it does not in time.
    pub async fn until_object<T>(
        &self,
        target: &Target,
        what: &str,
        test: impl FnMut(Option<&DynamicObject>) -> std::result::Result<T, String>,
    ) -> Result<T> {
        let cluster = self.cluster();
        Ok(until(cluster, target, (what, cluster.settings.patience), test).await?)
    }

    /// Waits until an object is gone, or another one has its name.
    ///
    /// # Errors
    /// When it stays.
    pub async fn gone(&self, target: &Target, uid: &str) -> Result {
        let cluster = self.cluster();
        Ok(gone(cluster, (target, uid), cluster.settings.patience).await?)
    }

    /// The object now, as JSON.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn read(&self, target: &Target) -> Result<Value> {
        let found = target.api(&self.cluster().client).get(&target.name).await;
        let found = found.with_context(|| format!("reading {} {}", target.kind, target.name))?;
        Ok(value(&found))
    }

    /// The UID of an object.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn uid(&self, target: &Target) -> Result<String> {
        let found = self.read(target).await?;
        let uid = found["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        ensure!(!uid.is_empty(), "{} {} has no UID", target.kind, target.name);
        Ok(uid)
    }

    /// Sets a field of an object until the end of the spec.
    ///
    /// # Errors
    /// When the object cannot be read or changed.
    pub async fn set(&self, target: &Target, pointer: &str, value: Option<Value>) -> Result {
        self.changes().set(target, pointer, value).await
    }
}

/// The generation of an object.
#[must_use]
pub fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}
