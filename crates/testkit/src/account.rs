//! Service accounts: what one may do, and tokens as its pods have them.
//!
//! In: a namespace, a name, rules. Out: a kubeconfig per pod whose bearer token the API server itself issued,
//! bound to that pod and so to its node. Never: a pod that runs; a token needs only its object.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use crate::controlplane::ControlPlane;

const RBAC: &str = "rbac.authorization.k8s.io";
/// How long the API server may take to hear of a role.
const PATIENCE: Duration = Duration::from_secs(30);

/// A service account.
pub struct Account<'c> {
    control: &'c ControlPlane,
    client: Client,
    namespace: String,
    name: String,
}

impl<'c> Account<'c> {
    /// Makes the account, and its namespace if there is none. It may do nothing yet.
    ///
    /// # Errors
    /// When the API server says no.
    pub async fn create(control: &'c ControlPlane, namespace: &str, name: &str) -> anyhow::Result<Self> {
        let client = control.client().await?;
        let mut space = Namespace::default();
        space.metadata.name = Some(namespace.to_owned());
        let spaces = Api::<Namespace>::all(client.clone());
        if spaces.get_opt(namespace).await?.is_none() {
            spaces.create(&PostParams::default(), &space).await.context("making the namespace")?;
        }
        let mut account = ServiceAccount::default();
        account.metadata.name = Some(name.to_owned());
        let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
        accounts.create(&PostParams::default(), &account).await.context("making the service account")?;
        Ok(Self { control, client, namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// An account that is there.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn of(control: &'c ControlPlane, namespace: &str, name: &str) -> anyhow::Result<Self> {
        let client = control.client().await?;
        Ok(Self { control, client, namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// Lets it do this: `cluster` everywhere, `namespaced` in its own namespace. To be called once. Returns
    /// when it may.
    ///
    /// # Errors
    /// When the API server says no.
    pub async fn allow(&self, cluster: Vec<PolicyRule>, namespaced: Vec<PolicyRule>) -> anyhow::Result<()> {
        let unique = format!("{}-{}", self.namespace, self.name);
        let role_ref = |kind: &str, name: &str| RoleRef {
            api_group: Some(RBAC.to_owned()),
            kind: kind.to_owned(),
            name: name.to_owned(),
        };
        let subjects = || {
            Some(vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name: self.name.clone(),
                namespace: Some(self.namespace.clone()),
                api_group: None,
            }])
        };
        let params = PostParams::default();
        let mut role = ClusterRole { rules: Some(cluster.clone()), ..ClusterRole::default() };
        role.metadata.name = Some(unique.clone());
        Api::all(self.client.clone()).create(&params, &role).await?;
        let mut binding = ClusterRoleBinding {
            role_ref: role_ref("ClusterRole", &unique),
            subjects: subjects(),
            ..ClusterRoleBinding::default()
        };
        binding.metadata.name = Some(unique);
        Api::all(self.client.clone()).create(&params, &binding).await?;

        let mut role = Role { rules: Some(namespaced.clone()), ..Role::default() };
        role.metadata.name = Some(self.name.clone());
        Api::namespaced(self.client.clone(), &self.namespace).create(&params, &role).await?;
        let mut binding = RoleBinding {
            role_ref: role_ref("Role", &self.name),
            subjects: subjects(),
            ..RoleBinding::default()
        };
        binding.metadata.name = Some(self.name.clone());
        Api::namespaced(self.client.clone(), &self.namespace).create(&params, &binding).await?;
        self.wait_until_allowed(&cluster, &namespaced).await
    }

    /// Waits until the API server grants this right, which takes some milliseconds.
    ///
    /// # Errors
    /// When the right is not granted in time.
    pub async fn wait_until_allowed(
        &self,
        cluster: &[PolicyRule],
        namespaced: &[PolicyRule],
    ) -> anyhow::Result<()> {
        for (namespace, rules) in [(None, cluster), (Some(self.namespace.as_str()), namespaced)] {
            for rule in rules {
                self.wait_until_ruled(namespace, rule).await?;
            }
        }
        Ok(())
    }

    async fn wait_until_ruled(&self, namespace: Option<&str>, rule: &PolicyRule) -> anyhow::Result<()> {
        let first = |list: &Option<Vec<String>>| list.as_ref().and_then(|list| list.first()).cloned();
        let resource = first(&rule.resources).unwrap_or_default();
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) => (resource.to_owned(), Some(subresource)),
            None => (resource, None),
        };
        let path = first(&rule.non_resource_urls);
        for verb in &rule.verbs {
            let mut spec =
                json!({ "user": format!("system:serviceaccount:{}:{}", self.namespace, self.name) });
            match &path {
                Some(path) => spec["nonResourceAttributes"] = json!({ "path": path, "verb": verb }),
                None => {
                    spec["resourceAttributes"] = json!({
                        "group": first(&rule.api_groups), "resource": resource, "subresource": subresource,
                        "verb": verb, "namespace": namespace, "name": first(&rule.resource_names),
                    });
                }
            }
            let review: SubjectAccessReview = serde_json::from_value(json!({ "spec": spec }))?;
            let reviews = Api::<SubjectAccessReview>::all(self.client.clone());
            let began = Instant::now();
            while !reviews.create(&PostParams::default(), &review).await?.status.is_some_and(|s| s.allowed) {
                anyhow::ensure!(began.elapsed() < PATIENCE, "{verb} on {resource} is still not allowed");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        Ok(())
    }

    /// Makes a pod of this account, already bound to `node`, which no kubelet runs.
    ///
    /// # Errors
    /// When the API server says no.
    pub async fn pod(&self, name: &str, node: &str) -> anyhow::Result<Pod> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": {
                "serviceAccountName": self.name,
                "automountServiceAccountToken": false,
                "nodeName": node,
                // As the pod security standard "restricted" wants it.
                "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
                "containers": [{
                    "name": "c",
                    "image": "nobody",
                    "securityContext": {
                        "allowPrivilegeEscalation": false,
                        "capabilities": { "drop": ["ALL"] },
                    },
                }],
            },
        }))?;
        self.pods().create(&PostParams::default(), &pod).await.context("making the pod")
    }

    /// A kubeconfig with a token bound to this pod; with `None` to no pod at all.
    ///
    /// # Errors
    /// When the API server says no, or the file cannot be written.
    pub async fn kubeconfig(&self, pod: Option<&Pod>) -> anyhow::Result<PathBuf> {
        let token = self.token(pod).await?;
        let of = pod.map_or_else(|| "no-pod".to_owned(), Pod::name_any);
        self.control.kubeconfig_with_token(&format!("{}-{}-{of}", self.namespace, self.name), &token)
    }

    /// A token bound to this pod; with `None` to no pod at all.
    ///
    /// # Errors
    /// When the API server says no.
    pub async fn token(&self, pod: Option<&Pod>) -> anyhow::Result<String> {
        let bound = pod.map(|pod| BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        });
        let spec =
            TokenRequestSpec { audiences: None, bound_object_ref: bound, expiration_seconds: Some(3600) };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), &self.namespace);
        let answer = accounts.create_token_request(&self.name, &PostParams::default(), &request).await;
        let token = answer.context("asking for a token")?.status.and_then(|status| status.token);
        token.context("an answer without a token")
    }

    /// The pods of its namespace, as an administrator sees them.
    #[must_use]
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}
