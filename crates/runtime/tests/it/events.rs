//! Events as they arrive at a real API server.

use crate::{admin, namespace, shared, soon, until};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event as Object;
use kube::Api;
use prometheus_client::registry::Registry;
use runtime::events::{Event, Severity, Subject, channel};
use tokio_util::sync::CancellationToken;

fn event(regarding: &Subject, note: &str) -> Event {
    Event {
        regarding: regarding.clone(),
        related: None,
        severity: Severity::Warning,
        reason: "FailedScheduling".to_owned(),
        action: "Scheduling".to_owned(),
        note: note.to_owned(),
    }
}

fn metrics(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

#[tokio::test]
async fn repeated_events_are_one_object_with_a_count() {
    let Some(plane) = shared().await else { return };
    let client = admin(plane).await;
    let space = namespace(&client, "events").await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), space);
    crate::watch::put(&maps, "subject").await;
    let subject = Subject::of(&maps.get("subject").await.unwrap());
    let mut registry = Registry::default();
    let (recorder, writer) = channel(client.clone(), "numa", &mut registry);
    let token = CancellationToken::new();
    let task = tokio::spawn(writer.run(token.clone()));
    let api: Api<Object> = Api::namespaced(client, space);
    let find = async |note: &str| {
        let all = api.list(&Default::default()).await.unwrap().items;
        assert!(all.len() <= 3, "{all:?}");
        all.into_iter().find(|object| object.note.as_deref() == Some(note))
    };

    recorder.record(event(&subject, "no room"));
    let first = until("the event", async || find("no room").await).await;
    assert!(first.series.is_none());
    assert_eq!(first.reporting_controller.as_deref(), Some("numa"));
    let instance = format!("numa-{}", runtime::host::name());
    assert_eq!(first.reporting_instance.as_deref(), Some(instance.as_str()));
    let regarding = first.regarding.unwrap();
    assert_eq!(
        (regarding.kind.as_deref(), regarding.uid.as_deref()),
        (Some("ConfigMap"), Some(subject.uid.as_str()))
    );
    assert_eq!((first.type_.as_deref(), first.action.as_deref()), (Some("Warning"), Some("Scheduling")));

    recorder.record(event(&subject, "no room"));
    let second =
        until("the series", async || find("no room").await.filter(|object| object.series.is_some())).await;
    assert_eq!(second.metadata.uid, first.metadata.uid);
    assert_eq!(second.series.unwrap().count, 2);

    // Another note is another event; another controller too; a note may be as long as it likes.
    let long = "€".repeat(1000);
    recorder.named("other").record(event(&subject, &long));
    let cut = "€".repeat(340) + " ...";
    let third = until("the long event", async || find(&cut).await).await;
    assert_eq!(third.reporting_controller.as_deref(), Some("other"));

    // What is still waiting when the process ends is written.
    recorder.record(event(&subject, "last words"));
    token.cancel();
    soon("the writer's end", task).await.unwrap();
    assert!(find("last words").await.is_some());
    assert!(metrics(&registry).contains("tholepin_events_written_total 4"), "{}", metrics(&registry));
}

#[tokio::test]
async fn events_that_cannot_be_written_are_dropped_and_counted() {
    let Some(plane) = shared().await else { return };
    let client = admin(plane).await;
    let mut registry = Registry::default();
    let (recorder, writer) = channel(client, "numa", &mut registry);
    // No writer runs yet, and still no caller waits.
    for number in 0..2000 {
        let name = format!("pod-{number}");
        let subject = Subject { namespace: "nowhere".to_owned(), name, ..Subject::default() };
        recorder.record(event(&subject, "x"));
    }
    assert!(
        metrics(&registry).contains("tholepin_events_dropped_total{reason=\"full\"} 976"),
        "{}",
        metrics(&registry)
    );
    let token = CancellationToken::new();
    let task = tokio::spawn(writer.run(token.clone()));
    // The namespace does not exist: refused, not tried again.
    until("a refusal", async || metrics(&registry).contains("{reason=\"refused\"}").then_some(())).await;
    token.cancel();
    soon("the writer's end", task).await.unwrap();
    assert!(metrics(&registry).contains("tholepin_events_written_total 0"));
}
