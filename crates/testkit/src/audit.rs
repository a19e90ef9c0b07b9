//! What was asked of an API server, by whom and with what answer, from its audit log: nothing sits between client and
//! server, so that latency, TLS and identities are the real ones.
//!
//! In: rules of an audit policy, and the log. Out: the requests that the rules selected, in the order of their answers.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Deserialize;
use serde_json::{Value, json};

/// The audit log of an API server.
#[derive(Clone, Debug)]
pub struct Audit {
    dir: PathBuf,
}

/// A request that was answered.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// `get`, `list`, `watch`, `create`, `patch`, ...
    pub verb: String,
    /// Who asked.
    #[serde(default)]
    pub user: User,
    /// Path and query.
    #[serde(default, rename = "requestURI")]
    pub uri: String,
    /// What it was about, unless it was no resource.
    #[serde(default)]
    pub object_ref: Object,
    /// The answer.
    #[serde(default)]
    pub response_status: Answer,
    /// The body that was sent, where the policy asks for it.
    #[serde(default)]
    pub request_object: Value,
    /// When the server had received it.
    #[serde(rename = "requestReceivedTimestamp")]
    pub received: Timestamp,
}

/// Who asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct User {
    /// For instance `system:serviceaccount:NAMESPACE:NAME`.
    #[serde(default)]
    pub username: String,
}

/// What a request was about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Object {
    /// Empty for the core group.
    pub api_group: String,
    /// Plural.
    pub resource: String,
    /// Mostly empty.
    pub subresource: String,
    /// Empty for what has none, and for all.
    pub namespace: String,
    /// Empty for lists, and for what is being created.
    pub name: String,
}

/// What was answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// The HTTP status.
    pub code: u16,
    /// Why not, if not.
    pub message: String,
}

impl Audit {
    /// Prepares a log in `dir`, which is made. `rules` are those of a `Policy`.
    ///
    /// # Errors
    /// When the folder or the policy cannot be written.
    pub fn new(dir: &Path, rules: &Value) -> anyhow::Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": rules,
        });
        let audit = Self { dir: dir.to_owned() };
        let path = audit.path("policy.json");
        fs::write(&path, policy.to_string()).with_context(|| format!("writing {}", path.display()))?;
        Ok(audit)
    }

    /// Flags that make kube-apiserver write the log.
    #[must_use]
    pub fn flags(&self) -> [String; 2] {
        [
            format!("--audit-policy-file={}", self.path("policy.json").display()),
            format!("--audit-log-path={}", self.path("log").display()),
        ]
    }

    /// All requests so far. A watch is there when it has ended.
    ///
    /// # Errors
    /// When a line is not what an API server writes.
    pub fn requests(&self) -> anyhow::Result<Vec<Request>> {
        let path = self.path("log");
        // Nothing was written yet.
        let Ok(text) = fs::read_to_string(&path) else { return Ok(Vec::new()) };
        // The last line may be in the middle of being written.
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()
            .with_context(|| format!("log {}", path.display()))
    }

    /// Requests that were denied for lack of a right.
    ///
    /// # Errors
    /// As [`Audit::requests`].
    pub fn denied(&self) -> anyhow::Result<Vec<Request>> {
        let mut all = self.requests()?;
        all.retain(|request| request.response_status.code == 403);
        Ok(all)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

impl Request {
    /// The name of its object: one being created is named in the body only.
    #[must_use]
    pub fn name(&self) -> &str {
        match self.object_ref.name.as_str() {
            "" => self.request_object["metadata"]["name"].as_str().unwrap_or_default(),
            name => name,
        }
    }

    /// The rules that allow no more than this request, whatever the name of its object: its verb, and `create` where
    /// an apply has made the object.
    #[must_use]
    pub fn rules(&self) -> Vec<PolicyRule> {
        let object = &self.object_ref;
        let resource = match object.subresource.as_str() {
            "" => object.resource.clone(),
            subresource => format!("{}/{subresource}", object.resource),
        };
        let made = self.verb == "patch" && self.response_status.code == 201;
        let rule = |verb: &str| PolicyRule {
            api_groups: Some(vec![object.api_group.clone()]),
            resources: Some(vec![resource.clone()]),
            verbs: vec![verb.to_owned()],
            ..PolicyRule::default()
        };
        [Some(self.verb.as_str()), made.then_some("create")].into_iter().flatten().map(rule).collect()
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Answer { code, message } = &self.response_status;
        write!(f, "{}: {} {} answered {code} {message}", self.user.username, self.verb, self.uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_requests_and_half_a_line_is_not_there_yet() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::new(&dir.path().join("audit"), &json!([{ "level": "Metadata" }])).unwrap();
        assert_eq!(audit.requests().unwrap(), []);
        let patch = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Request", "verb": "patch",
            "user": { "username": "somebody", "groups": ["g"] }, "requestURI": "/api/v1/nodes/n",
            "objectRef": { "resource": "nodes", "name": "n", "apiVersion": "v1" },
            "responseStatus": { "metadata": {}, "code": 403, "message": "no" },
            "requestObject": { "zones": [1] },
            "requestReceivedTimestamp": "2026-01-02T03:04:05.000006Z",
        });
        let create = json!({
            "verb": "create", "objectRef": { "resource": "pods" }, "responseStatus": { "code": 201 },
            "requestObject": { "metadata": { "name": "p" } },
            "requestReceivedTimestamp": "2026-01-02T03:04:05Z",
        });
        let half = &patch.to_string()[..30];
        fs::write(audit.path("log"), format!("{patch}\n{create}\n{half}")).unwrap();
        let all = audit.requests().unwrap();
        let seen: Vec<_> = all.iter().map(|request| (request.name(), request.response_status.code)).collect();
        assert_eq!(seen, [("n", 403), ("p", 201)]);
        let verbs = |request: &Request| {
            request.rules().into_iter().map(|rule| rule.verbs.concat()).collect::<Vec<_>>()
        };
        assert_eq!((verbs(&all[0]), verbs(&all[1])), (vec!["patch".to_owned()], vec!["create".to_owned()]));
        let mut made = all[0].clone();
        made.response_status.code = 201;
        assert_eq!(verbs(&made), ["patch", "create"]);
        let denied: Vec<_> = audit.denied().unwrap().iter().map(Request::to_string).collect();
        assert_eq!(denied, ["somebody: patch /api/v1/nodes/n answered 403 no"]);
    }
}
