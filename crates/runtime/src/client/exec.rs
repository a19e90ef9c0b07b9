//! A command in a running container.
//!
//! In: a container and the words of a command. Out: the output of the command, if it succeeded. Never: input, a
//! terminal, or a shell.
//!
//! The request goes to the kubelet's `/run` through the API server's node proxy, not to `pods/exec`: one request with
//! one answer needs neither WebSockets nor a library for them. It requires `create` on `nodes/proxy`, and works
//! wherever `kubectl exec` does (the kubelet's `enableDebuggingHandlers`).

use axum::http::Request;
use kube::Client;
use kube::core::Status;

/// A container of a pod.
#[derive(Clone, Copy, Debug)]
pub struct Container<'a> {
    /// The node the pod is on.
    pub node: &'a str,
    /// The pod's namespace.
    pub namespace: &'a str,
    /// The pod's name.
    pub pod: &'a str,
    /// The container's name.
    pub name: &'a str,
}

/// Runs the command `words` and returns its standard output, then its standard error.
///
/// # Errors
/// When the command cannot be run, fails, or writes more than `limit` bytes or no UTF-8. Also when a word is empty or
/// has a space in it, which the kubelet would take for two words.
pub async fn exec(
    client: &Client,
    container: Container<'_>,
    words: &[&str],
    limit: usize,
) -> Result<String, kube::Error> {
    if let Some(word) = words.iter().find(|word| word.is_empty() || word.contains(' ')) {
        return Err(kube::Error::Service(format!("{word:?} is not one word").into()));
    }
    let request = Request::post(path(container, words)).body(kube::client::Body::empty());
    super::text(client, request.map_err(kube::Error::HttpError)?, limit).await.map_err(|error| match error {
        // The kubelet answers "command 'x' exited with 1: output", on several lines.
        kube::Error::Api(status) => {
            let message = status.message.split_whitespace().collect::<Vec<_>>().join(" ");
            kube::Error::Api(Status::failure(&message, &status.reason).with_code(status.code).boxed())
        }
        other => other,
    })
}

fn path(container: Container<'_>, words: &[&str]) -> String {
    let Container { node, namespace, pod, name } = container;
    let [node, namespace, pod, name] = [node, namespace, pod, name].map(super::percent_encode);
    let command = super::percent_encode(&words.join(" "));
    format!("/api/v1/nodes/{node}/proxy/run/{namespace}/{pod}/{name}?cmd={command}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_escaped_in_the_path() {
        let container = Container { node: "a.b", namespace: "ns", pod: "p", name: "c" };
        assert_eq!(
            path(container, &["cat", "/run/a&b/c_d"]),
            "/api/v1/nodes/a.b/proxy/run/ns/p/c?cmd=cat%20%2Frun%2Fa%26b%2Fc_d"
        );
    }
}
