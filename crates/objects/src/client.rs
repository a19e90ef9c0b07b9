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

use crate::{Object, ObjectKind};

const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Objects in one page of a list.
const PAGE: u32 = 500;
/// Lists that callers run at the same time.
pub const AT_ONCE: usize = 8;

/// An API server, with the patience of its callers.
#[derive(Clone)]
pub struct ApiServer {
    /// The client, without retries of its own.
    pub client: Client,
    /// The field manager of all writes.
    pub manager: &'static str,
    /// Whether writes are dry runs: validated, admitted and not stored.
    pub dry_run: bool,
    /// How long a failing call is repeated; one attempt may take a third of it.
    pub patience: Duration,
    /// Ends calls and pauses early.
    pub cancel: CancellationToken,
}

/// The reason why a call has no answer.
#[derive(Debug)]
pub enum CallError {
    /// The call was cancelled.
    Cancelled,
    /// The call failed for good, or did not succeed in time.
    Failed(kube::Error),
}

/// What an apply does about fields that other managers state differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// They are a conflict.
    No,
    /// Our value counts.
    Yes,
}

impl CallError {
    /// Whether the call failed with an error of this class.
    #[must_use]
    pub fn is(&self, kind: fn(&kube::Error) -> bool) -> bool {
        matches!(self, Self::Failed(error) if kind(error))
    }
}

impl From<request::Error> for CallError {
    fn from(error: request::Error) -> Self {
        Self::Failed(kube::Error::BuildRequest(error))
    }
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        Self::Failed(error)
    }
}

impl ApiServer {
    /// Reads an object; `None` if the object, its namespace or its kind does not exist.
    ///
    /// # Errors
    /// When the call fails for good, or does not succeed in time.
    pub async fn get(&self, object: &Object) -> Result<Option<Value>, CallError> {
        let request = path(object.kind(), object.namespace()).get(object.name(), &Default::default())?;
        absent(self.call(request).await).map(|answer| answer.map(|answer| answer.body))
    }

    /// Lists the objects of a kind, in one namespace or in all; `None` if the kind does not exist.
    ///
    /// # Errors
    /// When the call fails for good, or does not succeed in time.
    pub async fn list(
        &self,
        kind: &ObjectKind,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> Result<Option<Vec<Value>>, CallError> {
        self.pages(|params| path(kind, namespace).list(params), params).await
    }

    /// Lists the metadata of the objects of a kind; `None` if the kind does not exist.
    ///
    /// # Errors
    /// When the call fails for good, or does not succeed in time.
    pub async fn list_metadata(
        &self,
        kind: &ObjectKind,
        namespace: Option<&str>,
    ) -> Result<Option<Vec<Value>>, CallError> {
        let params = ListParams::default();
        self.pages(|params| path(kind, namespace).list_metadata(params), &params).await
    }

    async fn pages<R>(&self, request: R, params: &ListParams) -> Result<Option<Vec<Value>>, CallError>
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

    /// Applies an object server-side, with strict validation; fields that the object does not state stay.
    ///
    /// # Errors
    /// When the call fails for good, or does not succeed in time.
    pub async fn apply(&self, object: &Object, force: Force) -> Result<Answer, CallError> {
        let params = PatchParams {
            dry_run: self.dry_run,
            force: force == Force::Yes,
            ..PatchParams::apply(self.manager).validation_strict()
        };
        let path = path(object.kind(), object.namespace());
        self.call(path.patch(object.name(), &params, &Patch::Apply(object.body()))?).await
    }

    /// Asks by a dry run whether an object could be created, under a free name and in the namespace `default`.
    ///
    /// # Errors
    /// When the call fails for good, or does not succeed in time.
    pub async fn probe(&self, object: &Object) -> Result<Answer, CallError> {
        let mut body = object.body().clone();
        body["metadata"]["name"] = Value::Null;
        body["metadata"]["generateName"] = format!("{}-", object.name()).into();
        let namespace = object.namespace().map(|_| "default");
        body["metadata"]["namespace"] = namespace.map_or(Value::Null, Into::into);
        let params = PostParams { dry_run: true, field_manager: Some(self.manager.to_owned()) };
        let data = body.to_string().into_bytes();
        self.call(path(object.kind(), namespace).create(&params, data)?).await
    }

    /// Restores a former state of an object exactly, with its former field managers. `live` is the present state.
    ///
    /// # Errors
    /// When the call fails for good, or does not succeed in time.
    pub async fn restore(
        &self,
        object: &Object,
        former: &Value,
        live: Option<&Value>,
    ) -> Result<(), CallError> {
        let params = PostParams { dry_run: self.dry_run, field_manager: Some(self.manager.to_owned()) };
        let path = path(object.kind(), object.namespace());
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
                // An earlier attempt may have succeeded and lost its answer.
                if !made.as_ref().is_err_and(|error| error.is(client::is_already_exists)) {
                    made?;
                }
            }
        }
        // The call above made us a manager of all fields; the next apply must find the former managers.
        let owners = json!({ "metadata": { "managedFields": former["metadata"]["managedFields"] } });
        let params = PatchParams { dry_run: self.dry_run, ..PatchParams::default() };
        self.call(path.patch(object.name(), &params, &Patch::Merge(owners))?).await?;
        Ok(())
    }

    /// Deletes an object if it still has this UID. Returns whether it existed.
    ///
    /// # Errors
    /// When the call fails for good, or does not succeed in time.
    pub async fn delete(
        &self,
        object: &Object,
        uid: Option<&str>,
        propagation: PropagationPolicy,
    ) -> Result<bool, CallError> {
        let params = DeleteParams {
            dry_run: self.dry_run,
            propagation_policy: Some(propagation),
            preconditions: uid.map(|uid| Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            ..DeleteParams::default()
        };
        let request = path(object.kind(), object.namespace()).delete(object.name(), &params)?;
        match self.call(request).await {
            Ok(_) => Ok(true),
            // Another object has the name by now: ours is gone.
            Err(error) if error.is(client::is_not_found) || error.is(client::is_conflict) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends a request, and repeats it until its answer is final or patience ends.
    ///
    /// # Errors
    /// When the call fails for good, or does not succeed in time.
    pub async fn call(&self, request: RawRequest) -> Result<Answer, CallError> {
        self.repeat(|| client::ask(&self.client, request.clone())).await
    }

    /// Repeats any call until its answer is final or patience ends.
    ///
    /// # Errors
    /// When the call fails for good, or does not succeed in time.
    pub async fn repeat<T, F>(&self, mut call: impl FnMut() -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        let (ends, attempt) = (Instant::now() + self.patience, self.patience / 3);
        let mut backoff = Backoff::new(BACKOFF.0, BACKOFF.1);
        loop {
            if self.cancel.is_cancelled() {
                return Err(CallError::Cancelled);
            }
            let error = match tokio::time::timeout(attempt, call()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_) => kube::Error::Service(format!("no answer within {attempt:?}").into()),
            };
            let delay = backoff.next_delay().max(asked_for(&error));
            if !client::is_retryable(&error) || Instant::now() + delay > ends {
                return Err(CallError::Failed(error));
            }
            tracing::debug!(error = client::brief(&error), ?delay, "a call failed and is repeated");
            self.sleep(delay).await?;
        }
    }

    /// Sleeps.
    ///
    /// # Errors
    /// [`CallError::Cancelled`] when cancelled meanwhile.
    pub async fn sleep(&self, duration: Duration) -> Result<(), CallError> {
        tokio::select! {
            () = self.cancel.cancelled() => Err(CallError::Cancelled),
            () = tokio::time::sleep(duration) => Ok(()),
        }
    }
}

/// Metadata that the API server assigns.
const ASSIGNED: [&str; 7] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "uid",
];

/// The path of a kind on the API server.
#[must_use]
pub fn path(kind: &ObjectKind, namespace: Option<&str>) -> Request {
    Request::new(DynamicObject::url_path(&kind.resource(), namespace))
}

/// The pause that the server asked for.
fn asked_for(error: &kube::Error) -> Duration {
    let details = match error {
        kube::Error::Api(status) => status.details.as_ref(),
        _ => None,
    };
    details.map_or(Duration::ZERO, |details| Duration::from_secs(details.retry_after_seconds.into()))
}

fn absent<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is(client::is_not_found) => Ok(None),
        Err(error) => Err(error),
    }
}
