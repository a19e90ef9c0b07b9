//! Calls to extenders over HTTP.
//!
//! In: the settings of an extender, questions of the core, bindings. Out: its answers. Never: a retry. A question
//! blocks the core's thread, at most for the extender's timeout and a read of the pod.
//!
//! Source: kube-scheduler 1.36 `extender.go` and `k8s.io/kube-scheduler/extender/v1`. As Go does, fields of answers are
//! found whatever their case: many extenders write them in lower case.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::schedulerconfig::{self, SchedulerConfig};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, Resource};
use runtime::client::{self, Connection, HttpEndpoint};
use runtime::shutdown::Tasks;
use runtime::watch;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use topology::resource::ResourceName;

use super::whole_nodes::WholeNodes;
use crate::core::Binding;
use crate::extender::{Call, CallError, Extender, Filtered, Managed, MetaVictims, NodeVictims};
use crate::pod::PodView;

/// The timeout of an extender that states none (`DefaultExtenderTimeout`).
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// Most victims that are read at a time, for an extender that does not know pods.
const MAX_READS: usize = 16;

/// An extender, and the ways to it and to the API server.
#[derive(Debug)]
pub(super) struct HttpExtender {
    settings: schedulerconfig::Extender,
    managed: Managed,
    timeout: Duration,
    client: Connected,
    server: Connected,
    /// For an extender that does not know the nodes itself.
    nodes: Option<WholeNodes>,
    runtime: Handle,
    stopped: CancellationToken,
}

/// A client, which has no text for logs.
struct Connected(Client);

impl std::fmt::Debug for Connected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("client")
    }
}

/// The extenders of a configuration, in its order.
pub(super) fn connect(
    config: &SchedulerConfig,
    connection: &Connection,
    (tasks, metrics): (&mut Tasks, &watch::Metrics),
) -> anyhow::Result<Vec<Arc<HttpExtender>>> {
    let knows_nodes = |extender: &schedulerconfig::Extender| {
        let asks = !extender.filter_verb.is_empty() || !extender.prioritize_verb.is_empty();
        extender.node_cache_capable || !asks
    };
    let nodes = match config.extenders.iter().all(knows_nodes) {
        true => None,
        false => Some(WholeNodes::spawn(tasks, connection, metrics)?),
    };
    let extenders = config.extenders.iter().enumerate().map(|(at, settings)| {
        let timeout = settings.http_timeout.to_std().filter(|timeout| !timeout.is_zero());
        let timeout = timeout.unwrap_or(DEFAULT_TIMEOUT);
        let endpoint = endpoint(settings);
        let extender = Connection::for_endpoint(&endpoint, super::user_agent().as_str())
            .and_then(|connection| connection.client_with_timeout(timeout));
        let names = settings.managed_resources.iter().map(|resource| ResourceName::new(&resource.name));
        let context = |error: &dyn std::error::Error| anyhow::anyhow!("extenders[{at}]: {error}");
        Ok(Arc::new(HttpExtender {
            managed: Managed(names.collect::<Result<_, _>>().map_err(|error| context(&error))?),
            timeout,
            client: Connected(extender.map_err(|error| context(&error))?),
            server: Connected(connection.client_with_timeout(super::WRITE_TIMEOUT)?),
            nodes: nodes.clone().filter(|_| !settings.node_cache_capable),
            runtime: Handle::current(),
            stopped: tasks.token().clone(),
            settings: settings.clone(),
        }))
    });
    extenders.collect()
}

/// How to reach an extender. As in kube-scheduler, one with `enableHTTPS` and no authority is not verified.
fn endpoint(settings: &schedulerconfig::Extender) -> HttpEndpoint {
    let tls = settings.tls.clone().unwrap_or_default();
    let has_authority = !tls.ca_file.is_empty() || !tls.ca_data.is_empty();
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    HttpEndpoint {
        url: settings.url_prefix.trim_end_matches('/').to_owned(),
        is_unchecked: tls.insecure || (settings.enable_https && !has_authority),
        server_name: given(tls.server_name),
        authority: (given(tls.ca_data), given(tls.ca_file)),
        certificate: (given(tls.cert_data), given(tls.cert_file)),
        key: (given(tls.key_data), given(tls.key_file)),
    }
}

impl HttpExtender {
    /// For the core.
    pub(super) fn extender(self: &Arc<Self>) -> Extender {
        let settings = &self.settings;
        Extender {
            managed: self.managed.clone(),
            filters: !settings.filter_verb.is_empty(),
            weight: (!settings.prioritize_verb.is_empty()).then_some(settings.weight),
            preempts: !settings.preempt_verb.is_empty(),
            ignorable: settings.ignorable,
            call: Box::new(Arc::clone(self)),
        }
    }

    pub(super) fn binds(&self) -> bool {
        !self.settings.bind_verb.is_empty()
    }

    /// Whether it is asked about a pod.
    pub(super) fn concerns(&self, pod: &PodView) -> bool {
        self.managed.concern(pod)
    }

    pub(super) fn is_ignorable(&self) -> bool {
        self.settings.ignorable
    }

    /// Lets it bind a pod.
    ///
    /// # Errors
    /// The reason for which it is not certain that the pod is bound.
    pub(super) async fn bind(&self, binding: &Binding) -> Result<(), String> {
        let pod = &binding.pod;
        let body = json!({
            "PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": binding.node,
        });
        let answer = self.post(&self.settings.bind_verb, &body).await;
        let answer = answer.and_then(|answer| refused(&answer).map_or(Ok(()), Err));
        answer.inspect_err(|reason| tracing::warn!(pod = pod.key(), reason, "an extender did not bind"))
    }

    async fn post(&self, verb: &str, body: &Value) -> Result<Value, String> {
        let url = format!("{}/{verb}", self.settings.url_prefix.trim_end_matches('/'));
        let path = format!("/{}", verb.trim_start_matches('/'));
        let call = tokio::time::timeout(self.timeout, client::post(&self.client.0, &path, body));
        match call.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(match client::code(&error) {
                Some(code) => format!("failed {verb} with extender at URL {url}, code {code}"),
                None => format!("extender at URL {url}: {}", client::brief(&error)),
            }),
            Err(_) => Err(format!("extender at URL {url}: no answer within {:?}", self.timeout)),
        }
    }

    /// Waits for an answer on the core's thread.
    fn wait<T>(&self, pod: &PodView, call: impl Future<Output = Result<T, String>>) -> Result<T, CallError> {
        let answer = self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.stopped.cancelled() => Err(CallError::Stopped),
                answer = call => answer.map_err(CallError::Failed),
            }
        });
        if let Err(CallError::Failed(reason)) = &answer {
            tracing::warn!(pod = pod.key(), reason, "an extender failed");
        }
        answer
    }

    /// The pod as the API server has it, and the nodes by name or whole, as the extender wants them.
    async fn question(&self, pod: &PodView, nodes: &[Arc<str>]) -> Result<Value, String> {
        let whole = self.whole_pod(pod).await?;
        let list = match &self.nodes {
            Some(known) => json!({ "metadata": {}, "items": known.of(nodes).await? }),
            None => Value::Null,
        };
        let names = self.nodes.is_none().then_some(nodes);
        Ok(json!({ "Pod": whole, "Nodes": list, "NodeNames": names }))
    }

    async fn whole_pod(&self, pod: &PodView) -> Result<Value, String> {
        let request = kube::core::Request::new(Pod::url_path(&(), Some(&pod.namespace)));
        let request = request.get(&pod.name, &kube::api::GetParams::default());
        let request = request.map_err(|error| error.to_string())?;
        let answer = client::ask(&self.server.0, request).await;
        let mut object = answer.map_err(|error| client::brief(&error))?.body;
        if object["metadata"]["uid"].as_str() != Some(&pod.uid) {
            return Err(format!("pod {} is gone", pod.key()));
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        Ok(object)
    }

    /// The candidates of a preemption: by uid, or for an extender that knows no pods, whole.
    async fn candidates(&self, pod: &PodView, candidates: &[NodeVictims]) -> Result<Value, String> {
        let whole = self.whole_pod(pod).await?;
        let (mut by_uid, mut in_full) = (BTreeMap::new(), BTreeMap::new());
        for candidate in candidates {
            let violations = candidate.violations;
            if self.settings.node_cache_capable {
                let pods = candidate.pods.iter().map(|pod| json!({ "UID": pod.uid }));
                let victims = json!({ "Pods": pods.collect::<Vec<_>>(), "NumPDBViolations": violations });
                by_uid.insert(&*candidate.node, victims);
            } else {
                let pods = stream::iter(&candidate.pods).map(|pod| self.whole_pod(pod)).buffered(MAX_READS);
                let victims =
                    json!({ "Pods": pods.try_collect::<Vec<_>>().await?, "NumPDBViolations": violations });
                in_full.insert(&*candidate.node, victims);
            }
        }
        Ok(json!({ "Pod": whole, "NodeNameToVictims": in_full, "NodeNameToMetaVictims": by_uid }))
    }
}

impl Call for Arc<HttpExtender> {
    fn filter(&self, pod: &PodView, nodes: &[Arc<str>]) -> Result<Filtered, CallError> {
        self.wait(pod, async {
            let answer = self.post(&self.settings.filter_verb, &self.question(pod, nodes).await?).await?;
            filtered(&answer, nodes, &self.settings)
        })
    }

    fn prioritize(&self, pod: &PodView, nodes: &[Arc<str>]) -> Result<Vec<(Arc<str>, i64)>, CallError> {
        self.wait(pod, async {
            let question = self.question(pod, nodes).await?;
            let answer = self.post(&self.settings.prioritize_verb, &question).await?;
            let score = |item: &Value| {
                let host = field(item, "Host").as_str()?;
                Some((Arc::from(host), field(item, "Score").as_i64()?))
            };
            let scores: Option<_> =
                answer.as_array().map_or(Some(Vec::new()), |list| list.iter().map(score).collect());
            scores.ok_or_else(|| {
                format!("extender {:?}: a score has no host or no number", self.settings.url_prefix)
            })
        })
    }

    fn preempt(
        &self,
        pod: &PodView,
        candidates: &[NodeVictims],
    ) -> Result<BTreeMap<Arc<str>, MetaVictims>, CallError> {
        self.wait(pod, async {
            let question = self.candidates(pod, candidates).await?;
            let answer = self.post(&self.settings.preempt_verb, &question).await?;
            let nodes = field(&answer, "NodeNameToMetaVictims").as_object();
            Ok(nodes
                .into_iter()
                .flatten()
                .map(|(node, victims)| (Arc::from(&**node), uids(victims)))
                .collect())
        })
    }
}

/// A field of an object, whatever its case; null if there is none.
pub(super) fn field<'v>(object: &'v Value, name: &str) -> &'v Value {
    let fields = object.as_object();
    let found = fields.and_then(|fields| fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)));
    found.map_or(&Value::Null, |(_, value)| value)
}

/// The error that an answer carries.
fn refused(answer: &Value) -> Option<String> {
    field(answer, "Error").as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The answer to a filter. Nodes that were not asked about are an error, as in kube-scheduler.
fn filtered(
    answer: &Value,
    asked: &[Arc<str>],
    settings: &schedulerconfig::Extender,
) -> Result<Filtered, String> {
    if let Some(error) = refused(answer) {
        return Err(error);
    }
    let names = field(answer, "NodeNames").as_array().filter(|_| settings.node_cache_capable);
    let fits: Vec<&str> = match names {
        Some(names) => names.iter().filter_map(Value::as_str).collect(),
        None => {
            let items = field(field(answer, "Nodes"), "items").as_array();
            items.into_iter().flatten().filter_map(|node| node["metadata"]["name"].as_str()).collect()
        }
    };
    let known = |name: &str| asked.iter().find(|asked| ***asked == *name).cloned();
    let unknown = |name| {
        let url = &settings.url_prefix;
        format!("extender {url:?} claims a filtered node {name:?} which is not found in the input node list")
    };
    let fits =
        fits.into_iter().map(|name| known(name).ok_or_else(|| unknown(name))).collect::<Result<_, _>>()?;
    let reasons = |name| {
        let map = field(answer, name).as_object().into_iter().flatten();
        map.map(|(node, text)| (Arc::from(&**node), text.as_str().unwrap_or_default().to_owned())).collect()
    };
    Ok(Filtered { fits, failed: reasons("FailedNodes"), unresolvable: reasons("FailedAndUnresolvableNodes") })
}

pub(super) fn uids(victims: &Value) -> MetaVictims {
    let pods = field(victims, "Pods").as_array().into_iter().flatten();
    MetaVictims {
        pods: pods.filter_map(|pod| field(pod, "UID").as_str()).map(Arc::from).collect(),
        violations: field(victims, "NumPDBViolations").as_u64().map_or(0, |count| count as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(node_cache_capable: bool) -> schedulerconfig::Extender {
        let url_prefix = "http://x".to_owned();
        schedulerconfig::Extender { url_prefix, node_cache_capable, ..Default::default() }
    }

    #[test]
    fn answers_to_filters_are_read_whatever_their_case() {
        let asked: Vec<Arc<str>> = ["a", "b", "c"].map(Arc::from).into();
        let fits = |names: &[&str]| Filtered {
            fits: names.iter().map(|name| Arc::from(*name)).collect(),
            ..Default::default()
        };
        for (answer, capable, wanted) in [
            (json!({ "NodeNames": ["a", "c"] }), true, Ok(fits(&["a", "c"]))),
            (json!({ "nodenames": ["a"], "error": "" }), true, Ok(fits(&["a"]))),
            (json!({ "nodes": { "items": [{ "metadata": { "name": "b" } }] } }), true, Ok(fits(&["b"]))),
            (json!({ "Nodes": { "items": [{ "metadata": { "name": "b" } }] } }), false, Ok(fits(&["b"]))),
            (json!({ "NodeNames": ["a"] }), false, Ok(fits(&[]))),
            (json!({ "NodeNames": null, "Nodes": null }), true, Ok(fits(&[]))),
            (json!({ "Error": "no", "NodeNames": ["a"] }), true, Err("no".to_owned())),
            (
                json!({ "NodeNames": ["z"] }),
                true,
                Err("extender \"http://x\" claims a filtered node \"z\" which is not found in the input node list"
                    .to_owned()),
            ),
        ] {
            assert_eq!(filtered(&answer, &asked, &settings(capable)), wanted, "{answer}");
        }
        let answer =
            json!({ "failedNodes": { "b": "full" }, "FailedAndUnresolvableNodes": { "c": "never" } });
        let found = filtered(&answer, &asked, &settings(true)).unwrap();
        assert_eq!(found.failed, [(Arc::from("b"), "full".to_owned())].into());
        assert_eq!(found.unresolvable, [(Arc::from("c"), "never".to_owned())].into());
    }

    #[test]
    fn https_without_an_authority_is_not_verified() {
        let tls = |ca: &str| schedulerconfig::ExtenderTls { ca_file: ca.to_owned(), ..Default::default() };
        for (enable_https, tls, is_unchecked) in [
            (true, None, true),
            (true, Some(tls("")), true),
            (true, Some(tls("ca")), false),
            (false, None, false),
        ] {
            let settings = schedulerconfig::Extender { enable_https, tls, ..settings(true) };
            assert_eq!(endpoint(&settings).is_unchecked, is_unchecked, "{settings:?}");
        }
    }
}
