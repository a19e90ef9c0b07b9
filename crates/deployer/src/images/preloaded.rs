//! Our default image, which is in no registry: nodes have it only if it was loaded into them.
//!
//! In: the cluster's nodes. Out: how many have the image. Never: a request to a registry.

use anyhow::bail;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, ListParams};
use runtime::client::brief;

/// Names that runtimes give to an image without a registry: containerd's, and those of podman and CRI-O.
const PREFIXES: [&str; 3] = ["", "docker.io/library/", "localhost/"];

/// Checks that a node has the image. Costs one list of the nodes.
///
/// # Errors
/// When no node reports the image, or the nodes cannot be listed. The error says how to get the image.
pub(crate) async fn check(client: &Client, image: &str) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let (mut params, mut count) = (ListParams::default().limit(500), 0);
    loop {
        let page = match nodes.list(&params).await {
            Ok(page) => page,
            Err(error) => bail!("listing nodes, to see which have image {image}: {}", brief(&error)),
        };
        if page.items.iter().any(|node| has(node, image)) {
            return Ok(());
        }
        count += page.items.len();
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => break,
        }
    }
    bail!(
        "image {image} is in no registry, and none of {count} nodes has it\n\
         Build it with `cargo xtask image`. Then push it, and name it with --image REGISTRY/{image},\n\
         or load it into every node (kind load image-archive target/image/tholepin.oci.tar).\n\
         A node lists a new image after some seconds, and 50 images at most; --image {image} skips this check."
    );
}

/// Whether the kubelet reports the image.
fn has(node: &Node, image: &str) -> bool {
    let images = node.status.iter().flat_map(|status| status.images.iter().flatten());
    let mut names = images.flat_map(|image| image.names.iter().flatten());
    names.any(|name| PREFIXES.iter().any(|prefix| name.strip_prefix(prefix) == Some(image)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_has_an_image_under_any_of_its_names() {
        let check = |names: &[&str], wanted: bool| {
            let status = json!({ "status": { "images": [{}, { "names": names }] } });
            let node: Node = serde_json::from_value(status).unwrap();
            assert_eq!(has(&node, "tholepin:1"), wanted, "{names:?}");
        };
        check(&["tholepin:1"], true);
        check(&["docker.io/library/tholepin@sha256:0", "docker.io/library/tholepin:1"], true);
        check(&["localhost/tholepin:1"], true);
        check(&["localhost/tholepin:2", "registry.example/tholepin:1", "tholepin:1x"], false);
        check(&[], false);
        assert!(!has(&Node::default(), "tholepin:1"));
    }
}
