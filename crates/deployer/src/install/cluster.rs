//! Calls to the API server, each repeated while that may help.
//!
//! In: kinds, names, objects. Out: answers. Never: a decision about what to do with an object.

use std::future::Future;
use std::time::Duration;

use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::params::{Preconditions, PropagationPolicy};
use kube::core::request;
use kube::core::{DynamicObject, Request};
use kube::{Client, Resource as _};
use runtime::backoff::Backoff;
use runtime::client::{self, Answer, RawRequest};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::object::{Object, Sort};

const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Of a list, at once.
const PAGE: u32 = 500;
/// Kinds that are listed at the same time.
pub const AT_ONCE: usize = 8;

/// An API server, how patient to be with it, and whoever may want to stop.
#[derive(Clone)]
pub struct Cluster {
    /// The client; without retries of its own.
    pub client: Client,
    /// The name under which fields are managed.
    pub manager: &'static str,
    /// Mark all writes as to be forgotten.
    pub dry_run: bool,
    /// How long a call is repeated; one attempt may take a third of it.
    pub patience: Duration,
    /// Who asks to stop.
    pub cancel: CancellationToken,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Stop {
    /// Somebody asked to stop.
    Cancelled,
    /// The call failed, in a way that does not pass or has not in time.
    Failed(kube::Error),
}

/// How an object is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Fields that others state differently are an error.
    No,
    /// What we state counts.
    Yes,
}

impl Stop {
    /// Whether the answer was like this.
    #[must_use]
    pub fn is(&self, kind: fn(&kube::Error) -> bool) -> bool {
        matches!(self, Self::Failed(error) if kind(error))
    }
}

impl From<request::Error> for Stop {
    fn from(error: request::Error) -> Self {
        Self::Failed(kube::Error::BuildRequest(error))
    }
}

impl From<kube::Error> for Stop {
    fn from(error: kube::Error) -> Self {
        Self::Failed(error)
    }
}

impl Cluster {
    /// The object as it is; `None` if it, its namespace or its kind is not there.
    ///
    /// # Errors
    /// When it fails in a way that does not pass, or has not passed in time.
    pub async fn get(&self, object: &Object) -> Result<Option<Value>, Stop> {
        let request = path(object.sort(), object.namespace()).get(object.name(), &Default::default())?;
        absent(self.call(request).await).map(|answer| answer.map(|answer| answer.body))
    }

    /// All objects of a kind, in one namespace or in all, with these labels; `None` if there is no such kind.
    ///
    /// # Errors
    /// When it fails in a way that does not pass, or has not passed in time.
    pub async fn list(
        &self,
        sort: &Sort,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> Result<Option<Vec<Value>>, Stop> {
        self.pages(|params| path(sort, namespace).list(params), params).await
    }

    /// The same, of each object no more than its metadata.
    ///
    /// # Errors
    /// When it fails in a way that does not pass, or has not passed in time.
    pub async fn list_metadata(
        &self,
        sort: &Sort,
        namespace: Option<&str>,
    ) -> Result<Option<Vec<Value>>, Stop> {
        let params = ListParams::default();
        self.pages(|params| path(sort, namespace).list_metadata(params), &params).await
    }

    async fn pages<R>(&self, request: R, params: &ListParams) -> Result<Option<Vec<Value>>, Stop>
    where
        R: Fn(&ListParams) -> Result<RawRequest, request::Error>,
    {
        let mut params = params.clone().limit(PAGE);
        let mut items = Vec::new();
        loop {
            let Some(mut answer) = absent(self.call(request(&params)?).await)? else { return Ok(None) };
            if let Value::Array(page) = answer.body["items"].take() {
                items.extend(page);
            }
            match answer.body["metadata"]["continue"].as_str() {
                None | Some("") => return Ok(Some(items)),
                Some(token) => params = params.continue_token(token),
            }
        }
    }

    /// Makes it say what it should, leaving alone what we do not state.
    ///
    /// # Errors
    /// When it fails in a way that does not pass, or has not passed in time.
    pub async fn apply(&self, object: &Object, force: Force) -> Result<Answer, Stop> {
        let params = PatchParams {
            dry_run: self.dry_run,
            force: force == Force::Yes,
            ..PatchParams::apply(self.manager).validation_strict()
        };
        let path = path(object.sort(), object.namespace());
        self.call(path.patch(object.name(), &params, &Patch::Apply(object.body()))?).await
    }

    /// Asks whether this would be taken if it were made, under a name that is free, in a namespace that is there.
    ///
    /// # Errors
    /// When it fails in a way that does not pass, or has not passed in time.
    pub async fn probe(&self, object: &Object) -> Result<Answer, Stop> {
        let mut body = object.body().clone();
        body["metadata"]["name"] = Value::Null;
        body["metadata"]["generateName"] = format!("{}-", object.name()).into();
        let namespace = object.namespace().map(|_| "default");
        body["metadata"]["namespace"] = namespace.map_or(Value::Null, Into::into);
        let params = PostParams { dry_run: true, field_manager: Some(self.manager.to_owned()) };
        let data = body.to_string().into_bytes();
        self.call(path(object.sort(), namespace).create(&params, data)?).await
    }

    /// Makes an object say what it said formerly, nothing else, and belong to whom it belonged. `live` is what is there now.
    ///
    /// # Errors
    /// When it fails in a way that does not pass, or has not passed in time.
    pub async fn restore(&self, object: &Object, former: &Value, live: Option<&Value>) -> Result<(), Stop> {
        let params = PostParams { dry_run: self.dry_run, field_manager: Some(self.manager.to_owned()) };
        let path = path(object.sort(), object.namespace());
        let mut body = former.clone();
        if let Some(metadata) = body["metadata"].as_object_mut() {
            metadata.retain(|field, _| !ASSIGNED.contains(&field.as_str()));
        }
        match live {
            Some(live) => {
                body["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
                let data = body.to_string().into_bytes();
                self.call(path.replace(object.name(), &params, data)?).await?;
            }
            None => {
                let made = self.call(path.create(&params, body.to_string().into_bytes())?).await;
                // An attempt of which the answer was lost.
                if !made.as_ref().is_err_and(|stop| stop.is(client::is_already_exists)) {
                    made?;
                }
            }
        }
        // The call above is noted as ours; the next apply is to find what it would have found before.
        let owners = json!({ "metadata": { "managedFields": former["metadata"]["managedFields"] } });
        let params = PatchParams { dry_run: self.dry_run, ..PatchParams::default() };
        self.call(path.patch(object.name(), &params, &Patch::Merge(owners))?).await?;
        Ok(())
    }

    /// Deletes it, if it is still the one with this uid. Says whether it was there.
    ///
    /// # Errors
    /// When it fails in a way that does not pass, or has not passed in time.
    pub async fn delete(
        &self,
        object: &Object,
        uid: Option<&str>,
        propagation: PropagationPolicy,
    ) -> Result<bool, Stop> {
        let params = DeleteParams {
            dry_run: self.dry_run,
            propagation_policy: Some(propagation),
            preconditions: uid.map(|uid| Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            ..DeleteParams::default()
        };
        let request = path(object.sort(), object.namespace()).delete(object.name(), &params)?;
        match self.call(request).await {
            Ok(_) => Ok(true),
            // Somebody else's of the same name: ours is gone.
            Err(stop) if stop.is(client::is_not_found) || stop.is(client::is_conflict) => Ok(false),
            Err(stop) => Err(stop),
        }
    }

    /// Repeats a request until it is answered in a way that repeating cannot better, or patience ends.
    ///
    /// # Errors
    /// When it fails in a way that does not pass, or has not passed in time.
    pub async fn call(&self, request: RawRequest) -> Result<Answer, Stop> {
        self.repeat(|| client::ask(&self.client, request.clone())).await
    }

    /// The same for any call.
    ///
    /// # Errors
    /// When it fails in a way that does not pass, or has not passed in time.
    pub async fn repeat<T, F>(&self, mut call: impl FnMut() -> F) -> Result<T, Stop>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        let (ends, attempt) = (Instant::now() + self.patience, self.patience / 3);
        let mut backoff = Backoff::new(BACKOFF.0, BACKOFF.1);
        loop {
            if self.cancel.is_cancelled() {
                return Err(Stop::Cancelled);
            }
            let error = match tokio::time::timeout(attempt, call()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_) => kube::Error::Service(format!("no answer within {attempt:?}").into()),
            };
            let delay = backoff.next_delay().max(asked_for(&error));
            if !client::is_retryable(&error) || Instant::now() + delay > ends {
                return Err(Stop::Failed(error));
            }
            tracing::debug!(error = client::brief(&error), ?delay, "a call failed and is repeated");
            self.sleep(delay).await?;
        }
    }

    /// Waits, unless somebody asks to stop.
    ///
    /// # Errors
    /// When it was asked to stop.
    pub async fn sleep(&self, duration: Duration) -> Result<(), Stop> {
        tokio::select! {
            () = self.cancel.cancelled() => Err(Stop::Cancelled),
            () = tokio::time::sleep(duration) => Ok(()),
        }
    }
}

/// Metadata that is the API server's to give.
const ASSIGNED: [&str; 7] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "uid",
];

/// Where a kind is served.
#[must_use]
pub fn path(sort: &Sort, namespace: Option<&str>) -> Request {
    Request::new(DynamicObject::url_path(&sort.resource(), namespace))
}

/// How long the server asked us to stay away.
fn asked_for(error: &kube::Error) -> Duration {
    let details = match error {
        kube::Error::Api(status) => status.details.as_ref(),
        _ => None,
    };
    details.map_or(Duration::ZERO, |details| Duration::from_secs(details.retry_after_seconds.into()))
}

fn absent<T>(answer: Result<T, Stop>) -> Result<Option<T>, Stop> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(stop) if stop.is(client::is_not_found) => Ok(None),
        Err(stop) => Err(stop),
    }
}
