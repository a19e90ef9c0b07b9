//! ImageLocality: nodes that have a pod's images already score higher.
//!
//! In: the images of nodes, the images of a pod. Out: a score of 0 to 100. Never: a filter, or a pod that is woken
//! because an image has come. Source: kube-scheduler 1.36 `imagelocality`, and `imageState` of its cache.
//!
//! A node lists up to 50 images with several names each. Kept are eight bytes for a name and node, and one entry for
//! a name in the cluster. Names are hashed: two that collide change a score, and nothing else.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;
use smallvec::SmallVec;

/// Bytes of the images of a pod below which a node scores 0.
const MIN_BYTES: i64 = 23 * 1024 * 1024;
/// Bytes for each container from which on a node scores 100.
const MAX_CONTAINER_BYTES: i64 = 1000 * 1024 * 1024;

/// The hash of an image's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageName(u64);

/// An image on a node, by one of its names, with its size in bytes.
pub type NodeImage = (ImageName, i64);

/// The images of a pod, one entry for each container and image volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodImages {
    names: Arc<[ImageName]>,
    /// Number of init and app containers.
    containers: i64,
}

/// Names of the images on all nodes.
#[derive(Debug, Default)]
pub struct Images(HashMap<ImageName, Image>);

#[derive(Debug)]
struct Image {
    /// The size that the first node stated, in bytes.
    bytes: i64,
    /// Number of nodes that have the image.
    nodes: usize,
}

/// What each image of a pod adds to the sum of a node that has it. Made once for a pod and cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    images: SmallVec<[(ImageName, i64); 4]>,
    containers: i64,
}

impl ImageName {
    fn of(name: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self(hasher.finish())
    }

    /// The name of a pod's image; without tag and digest it means `:latest`.
    fn of_pod(name: &str) -> Self {
        let last = |separator| name.rfind(separator);
        if last(':') <= last('/') { Self::of(&format!("{name}:latest")) } else { Self::of(name) }
    }
}

/// The images of a node (`status.images`) by name, in order, each name once.
#[must_use]
pub fn of_node(status: Option<&wire::NodeStatus>) -> Vec<NodeImage> {
    let images = status.iter().flat_map(|status| status.images.iter().flatten());
    let named = images.flat_map(|image| {
        let bytes = image.size_bytes.unwrap_or(0).max(0);
        image.names.iter().flatten().map(move |name| (ImageName::of(name), bytes))
    });
    let mut list: Vec<_> = named.collect();
    list.sort_unstable();
    list.dedup_by_key(|(name, _)| *name);
    list
}

impl PodImages {
    /// Reads the images of a pod.
    #[must_use]
    pub fn read(spec: &wire::PodSpec) -> Self {
        let containers = || spec.init_containers.iter().flatten().chain(&spec.containers);
        let of_containers = containers().filter_map(|container| container.image.as_deref());
        let volumes = spec.volumes.iter().flatten();
        let of_volumes = volumes.filter_map(|volume| volume.image.as_ref()?.reference.as_deref());
        let names = of_containers.chain(of_volumes).map(ImageName::of_pod).collect();
        Self { names, containers: i64::try_from(containers().count()).unwrap_or(i64::MAX) }
    }
}

impl Images {
    /// A node that had the images `held` has those of `now`, both in the order of names. Cost: names of both lists;
    /// nothing but their comparison if they are equal.
    pub fn replace(&mut self, held: &mut Box<[ImageName]>, now: &[NodeImage]) {
        if held.iter().eq(now.iter().map(|(name, _)| name)) {
            return;
        }
        for (name, bytes) in now {
            self.0.entry(*name).or_insert(Image { bytes: *bytes, nodes: 0 }).nodes += 1;
        }
        for name in &*std::mem::replace(held, now.iter().map(|(name, _)| *name).collect()) {
            if let Some(image) = self.0.get_mut(name) {
                image.nodes -= 1;
                if image.nodes == 0 {
                    self.0.remove(name);
                }
            }
        }
    }

    /// What a pod wants, in a cluster of `nodes` nodes. An image counts the more, the more nodes have it, so that pods
    /// do not crowd on the first node that has it.
    #[must_use]
    pub fn wanted(&self, pod: &PodImages, nodes: usize) -> Wanted {
        let images = pod.names.iter().filter_map(|name| {
            let image = self.0.get(name)?;
            let share = image.nodes as f64 / nodes.max(1) as f64;
            Some((*name, (image.bytes as f64 * share) as i64))
        });
        Wanted { images: images.collect(), containers: pod.containers }
    }
}

impl Wanted {
    /// The score of a node with these images, in the order of names: 0 to 100. Cost: the pod's images that any node
    /// has x log(names of the node).
    #[must_use]
    pub fn score(&self, node: &[ImageName]) -> i64 {
        let there = self.images.iter().filter(|(name, _)| node.binary_search(name).is_ok());
        let sum = there.fold(0_i64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        let most = MAX_CONTAINER_BYTES.saturating_mul(self.containers.clamp(1, 1_000));
        100 * (sum.clamp(MIN_BYTES, most) - MIN_BYTES) / (most - MIN_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MI: i64 = 1 << 20;

    fn node(images: &[(&str, i64)]) -> Vec<NodeImage> {
        let images: Vec<_> = images
            .iter()
            .map(|(name, bytes)| json!({"names": [name, format!("{name}@sha256:0")], "sizeBytes": bytes}))
            .collect();
        of_node(Some(&serde_json::from_value(json!({ "images": images })).unwrap()))
    }

    #[test]
    fn scores_are_those_of_the_formula() {
        // Two nodes; `both` is on both, so it counts in full, and `one` by half.
        let first = node(&[("r.io/both:1", 500 * MI), ("r.io/one:latest", 1_000 * MI), ("small:1", 10 * MI)]);
        let second = node(&[("r.io/both:1", 500 * MI)]);
        let mut images = Images::default();
        let mut held = [Box::default(), Box::default()];
        images.replace(&mut held[0], &first);
        images.replace(&mut held[1], &second);
        for (app, init, volume, scores) in [
            // 100 * (500 - 23) / (1000 - 23) = 48.8
            ("r.io/both:1", None, None, [48, 48]),
            ("r.io/both:1@sha256:0", None, None, [48, 48]),
            ("r.io/both:2", None, None, [0, 0]),
            // Without a tag: 1000 / 2 = 500.
            ("r.io/one", None, None, [48, 0]),
            // 10 / 2 = 5 is below 23.
            ("small:1", None, None, [0, 0]),
            // Two containers: 100 * (1000 - 23) / (2000 - 23) = 49.4, and 100 * (500 - 23) / 1977 = 24.1.
            ("r.io/both:1", Some("r.io/one"), None, [49, 24]),
            // A volume adds to the sum, and not to the number of containers.
            ("r.io/both:1", None, Some("r.io/one"), [100, 48]),
        ] {
            let mut spec = json!({"containers": [{"name": "c", "image": app}]});
            spec["initContainers"] = init.map_or(json!(null), |image| json!([{"name": "i", "image": image}]));
            spec["volumes"] =
                volume.map_or(json!(null), |image| json!([{"name": "v", "image": {"reference": image}}]));
            let pod = PodImages::read(&serde_json::from_value(spec).unwrap());
            let wanted = images.wanted(&pod, 2);
            let found = [0, 1].map(|node| wanted.score(&held[node]));
            assert_eq!(found, scores, "{app} {init:?} {volume:?}");
        }
    }

    #[test]
    fn names_without_a_tag_mean_latest() {
        for (pod, node) in [
            ("a", "a:latest"),
            ("r:5000/a", "r:5000/a:latest"),
            ("r:5000/a:1", "r:5000/a:1"),
            ("r/a@sha256:0", "r/a@sha256:0"),
            ("", ":latest"),
        ] {
            assert_eq!(ImageName::of_pod(pod), ImageName::of(node), "{pod}");
        }
    }

    #[test]
    fn nodes_of_an_image_are_counted_as_lists_change() {
        let (a, b) = (node(&[("a:1", MI), ("b:1", MI)]), node(&[("b:1", 2 * MI), ("b:1", 3 * MI)]));
        let mut images = Images::default();
        let counts =
            |images: &Images| ["a:1", "b:1"].map(|name| images.0.get(&ImageName::of(name)).map(|i| i.nodes));
        let mut held = [Box::default(), Box::default()];
        for (node, list, wanted) in [
            (0, &a, [Some(1), Some(1)]),
            (1, &b, [Some(1), Some(2)]),
            (0, &b, [None, Some(2)]),
            (1, &b, [None, Some(2)]),
            (1, &vec![], [None, Some(1)]),
            (1, &vec![], [None, Some(1)]),
            (0, &vec![], [None, None]),
        ] {
            images.replace(&mut held[node], list);
            assert_eq!(counts(&images), wanted, "{node} {list:?}");
        }
        assert!(images.0.is_empty());
    }
}
