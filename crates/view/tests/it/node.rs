//! A node by ids: cores, pods, predicted and observed places.

use view::node::{CpuAssignment, NodeDetail};

use crate::fixture;

async fn page(name: &'static str) -> Option<NodeDetail> {
    let (_folder, input) = fixture::dump();
    let observer = input.observe_once("test").await.unwrap();
    observer.ask(move |core, _| NodeDetail::of(core, name)).await.unwrap()
}

#[tokio::test]
async fn cores_say_who_holds_them() {
    let page = page("by-ids").await.unwrap();
    let zones: Vec<_> = page.sockets.iter().flat_map(|socket| &socket.zones).collect();
    let usages = |zone: usize| -> Vec<CpuAssignment> {
        let cores = zones[zone].caches.iter().flat_map(|cache| &cache.cores);
        cores.flat_map(|core| &core.threads).map(|thread| thread.usage).collect()
    };
    assert_eq!(
        usages(0),
        [CpuAssignment::Reserved, CpuAssignment::Exclusive, CpuAssignment::Exclusive, CpuAssignment::Free]
    );
    assert_eq!(usages(1), [CpuAssignment::Free; 4]);
    let pod = &page.pods[0];
    assert_eq!((&*pod.name, pod.stage, &*pod.zones), ("runs", "admitted", &[0][..]));
    assert_eq!((&*pod.predicted[0].cpus, &*pod.observed[0].cpus), ("1-2", "1-2"));
    assert_eq!((pod.is_certain, pod.is_as_predicted), (true, Some(true)));
    assert_eq!(page.distances[1].to, [(0, 21), (1, 10)]);
    assert_eq!(page.settings["reservedCPUs"], "0");
}

#[tokio::test]
async fn zones_alone_have_no_cores() {
    let page = page("by-zones").await.unwrap();
    assert!(page.sockets.is_empty());
    assert_eq!((page.row.policy, page.row.scope, page.row.rejected), (Some("restricted"), Some("pod"), 1));
    assert_eq!(page.row.zones[1].free, [2_000]);
}

#[tokio::test]
async fn a_node_that_is_not_there_has_no_page() {
    assert!(page("nobody").await.is_none());
}
