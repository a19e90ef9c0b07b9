//! Removing components. Objects are found by their labels, so the options of the deployment do not matter.
//!
//! In: components. Out: a cluster without them. Never: the deletion of an object without our label; without force also
//! none that takes objects of others along.

use std::collections::BTreeSet;

use kube::Client;
use kube::api::ListParams;
use tokio_util::sync::CancellationToken;

use super::inventory;
use super::kinds::{DEFINITION, is_ground};
use super::run::{Halt, Run, listed};
use super::step::{ObjectStep, Observer, Operation, Step};
use super::{Error, Outcome, Removal, Settings};
use crate::part::{COMPONENT, Component, MANAGED_BY, MANAGER, Part};
use objects::ownership::is_terminating;
use objects::{Object, ObjectKind};

/// Removes components and their objects in the reverse order of installation.
///
/// An absent object is no error. A failure of one object does not stop the rest. A removal can be interrupted anywhere
/// and repeated.
///
/// # Errors
/// [`Error::Several`] with all failures, or [`Error::Cancelled`].
pub async fn remove(
    client: &Client,
    components: &[Component],
    settings: &Settings,
    observer: &mut dyn Observer,
    cancel: &CancellationToken,
) -> Result<Removal, Error> {
    let run = Run::new(client, settings, observer, cancel);
    let wanted: Vec<Component> =
        Component::ALL.into_iter().rev().filter(|component| components.contains(component)).collect();
    let mut work = RemovalRun {
        run,
        errors: Vec::new(),
        gone: BTreeSet::new(),
        touched: BTreeSet::new(),
        left: 0,
        next: None,
    };
    if work.remove(&wanted).await.is_err() {
        let done = work.run.outcome.pruned.len();
        return Err(Error::Cancelled { done, all: done + work.left, next: work.next });
    }
    let Outcome { pruned, kept, .. } = work.run.outcome;
    if work.errors.is_empty() {
        Ok(Removal { deleted: pruned, kept })
    } else {
        Err(Error::Several(work.errors))
    }
}

/// A removal in progress.
struct RemovalRun<'a> {
    run: Run<'a>,
    errors: Vec<Error>,
    /// Uids of deleted objects, which may still be listed for a moment.
    gone: BTreeSet<String>,
    /// Namespaces of deleted objects.
    touched: BTreeSet<String>,
    /// The number of objects still to be deleted, and the next one.
    left: usize,
    next: Option<String>,
}

/// The caller cancelled.
struct Cancelled;

impl RemovalRun<'_> {
    async fn remove(&mut self, components: &[Component]) -> Result<(), Cancelled> {
        for (place, component) in components.iter().copied().enumerate() {
            self.run.observe(&Step::Began(Operation::Remove, component));
            let before = self.errors.len();
            self.remove_component(component, &components[place + 1..]).await?;
            if self.errors.len() == before {
                self.run.observe(&Step::Ended(Operation::Remove, component));
            }
        }
        Ok(())
    }

    async fn remove_component(&mut self, component: Component, later: &[Component]) -> Result<(), Cancelled> {
        let found = inventory::inventory(&self.run.api_server, &[component], &[]).await;
        let Some(found) = self.noted(found)? else { return Ok(()) };
        for halt in found.failures {
            self.noted(Err::<(), _>(halt))?;
        }
        let objects = found.objects.into_iter().map(|(_, object)| object).rev();
        let (grounds, others): (Vec<_>, Vec<_>) = objects.partition(|object| is_ground(object.kind()));
        let (workloads, others): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|object| object.kind().is_workload());
        let definitions = grounds.into_iter().filter(|object| object.kind().group_kind() == DEFINITION);
        let definitions: Vec<Object> = definitions.collect();
        self.left = workloads.len() + others.len() + definitions.len();
        // Workloads go first: their pods would fail without the other objects.
        self.delete_all(component, &workloads).await?;
        self.delete_all(component, &others).await?;
        self.remove_namespaces(component, later).await?;
        for definition in definitions {
            self.remove_definition(component, definition).await?;
        }
        Ok(())
    }

    /// Deletes objects, then waits for all of them.
    async fn delete_all(&mut self, component: Component, objects: &[Object]) -> Result<(), Cancelled> {
        for object in objects {
            self.delete(component, object).await?;
        }
        let waits = self.run.settings.wait && !self.run.is_dry();
        for object in objects.iter().filter(|_| waits) {
            let uid = Some(&object.body()["metadata"]["uid"]);
            let waited = self.run.wait_gone(component, object, uid).await;
            self.noted_of(component, object, waited)?;
        }
        Ok(())
    }

    async fn delete(&mut self, component: Component, object: &Object) -> Result<(), Cancelled> {
        self.next = Some(object.to_string());
        let metadata = &object.body()["metadata"];
        self.gone.extend(metadata["uid"].as_str().map(str::to_owned));
        self.touched.extend(object.namespace().map(str::to_owned));
        let patient = self.run.settings.wait && object.kind().is_workload();
        let deleted = self.run.delete(object, object.body(), patient).await;
        if self.noted_of(component, object, deleted)? == Some(true) {
            self.run.report(component, object, ObjectStep::Deleted);
        }
        self.left = self.left.saturating_sub(1);
        Ok(())
    }

    async fn remove_definition(&mut self, component: Component, definition: Object) -> Result<(), Cancelled> {
        if !self.run.settings.force {
            let used = inventory::is_used(&self.run.api_server, &definition).await;
            match self.noted_of(component, &definition, used)? {
                Some(false) => {}
                Some(true) => {
                    self.keep(component, &definition, "objects of this kind exist".to_owned());
                    return Ok(());
                }
                None => return Ok(()),
            }
        }
        self.delete_all(component, &[definition]).await
    }

    /// Deletes our namespaces that are no longer needed: those of this component, and those of its deleted objects.
    async fn remove_namespaces(
        &mut self,
        component: Component,
        later: &[Component],
    ) -> Result<(), Cancelled> {
        let found = namespaces(&mut self.run).await;
        for namespace in self.noted(found)?.unwrap_or_default() {
            let is_its = namespace.label(COMPONENT) == Some(component.name());
            if !is_its && !self.touched.contains(namespace.name()) || self.is_settled(&namespace) {
                continue;
            }
            let reason = occupied(&mut self.run, &namespace, &self.gone, later).await;
            match self.noted_of(component, &namespace, reason)? {
                Some(NamespaceState::Free) => self.delete_all(component, &[namespace]).await?,
                Some(NamespaceState::Shared) | None => {}
                Some(NamespaceState::Occupied(reason)) => self.keep(component, &namespace, reason),
            }
        }
        Ok(())
    }

    /// Whether the removal of an earlier component already handled this namespace.
    fn is_settled(&self, namespace: &Object) -> bool {
        let deleted = self.run.outcome.pruned.iter().map(|(_, object)| object);
        let kept = self.run.outcome.kept.iter().map(|(_, object, _)| object);
        deleted.chain(kept).any(|object| object.is_same(namespace))
    }

    fn keep(&mut self, component: Component, object: &Object, reason: String) {
        self.left = self.left.saturating_sub(1);
        self.run.report(component, object, ObjectStep::Kept(reason));
    }

    fn noted_of<T>(
        &mut self,
        component: Component,
        object: &Object,
        result: Result<T, Halt>,
    ) -> Result<Option<T>, Cancelled> {
        let result = result.map_err(|halt| self.run.failed(Operation::Remove, component, object, halt));
        self.noted(result)
    }

    fn noted<T>(&mut self, result: Result<T, Halt>) -> Result<Option<T>, Cancelled> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Halt::Cancelled) => Err(Cancelled),
            Err(Halt::Failed(error)) => {
                self.errors.push(error);
                Ok(None)
            }
        }
    }
}

/// Whether one of our namespaces can be deleted.
enum NamespaceState {
    Free,
    /// A component that will be removed later is in it.
    Shared,
    /// No, for this reason.
    Occupied(String),
}

async fn occupied(
    run: &mut Run<'_>,
    namespace: &Object,
    gone: &BTreeSet<String>,
    later: &[Component],
) -> Result<NamespaceState, Halt> {
    if is_terminating(namespace.body()) {
        return Ok(NamespaceState::Free);
    }
    let occupants = inventory::occupants(&run.api_server, namespace, gone).await?;
    if occupants.ours.iter().any(|ours| later.iter().any(|later| later.name() == ours)) {
        return Ok(NamespaceState::Shared);
    }
    if !occupants.ours.is_empty() {
        let ours: Vec<&str> = occupants.ours.iter().map(String::as_str).collect();
        return Ok(NamespaceState::Occupied(format!("{} is in it", ours.join(" and "))));
    }
    if !occupants.others.is_empty() && !run.settings.force {
        let mut others: Vec<&str> = occupants.others.iter().map(String::as_str).collect();
        let more = others.len().saturating_sub(MOST_NAMED);
        others.truncate(MOST_NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        return Ok(NamespaceState::Occupied(format!(
            "it has objects of others: {}{more}",
            others.join(", ")
        )));
    }
    Ok(NamespaceState::Free)
}

const MOST_NAMED: usize = 10;

/// All namespaces with our label.
async fn namespaces(run: &mut Run<'_>) -> Result<Vec<Object>, Halt> {
    let kind = ObjectKind::new("", "v1", "Namespace", "namespaces");
    let params = ListParams::default().labels(&format!("{MANAGED_BY}={MANAGER}"));
    let list = run.api_server.list(&kind, None, &params).await;
    let list = list.map_err(|stop| Halt::of("listing", "Namespace objects", stop))?;
    Ok(list.unwrap_or_default().into_iter().filter_map(|item| listed(&kind, item)).collect())
}

impl Run<'_> {
    /// Deletes objects of earlier deployments that the components no longer have.
    pub(super) async fn prune(&mut self, parts: &[Part]) -> Result<(), Halt> {
        let components: Vec<Component> = parts.iter().map(Part::component).collect();
        let wanted: Vec<&Object> = parts.iter().flat_map(Part::objects).collect();
        let kinds: Vec<ObjectKind> = wanted.iter().map(|object| object.kind().clone()).collect();
        let found = inventory::inventory(&self.api_server, &components, &kinds).await?;
        if let Some(halt) = found.failures.into_iter().next() {
            return Err(halt);
        }
        let stale = |object: &Object| !wanted.iter().any(|wanted| wanted.is_same(object));
        let mut stale: Vec<(Component, Object)> =
            found.objects.into_iter().filter(|(_, object)| stale(object)).collect();
        stale.reverse();
        let (grounds, others): (Vec<_>, Vec<_>) =
            stale.into_iter().partition(|(_, object)| is_ground(object.kind()));
        let mut gone = BTreeSet::new();
        for (component, object) in others {
            gone.extend(object.body()["metadata"]["uid"].as_str().map(str::to_owned));
            self.prune_one(component, object).await?;
        }
        for (component, object) in grounds {
            match self.needed(&object, &gone).await? {
                Some(reason) => self.report(component, &object, ObjectStep::Kept(reason)),
                None => self.prune_one(component, object).await?,
            }
        }
        Ok(())
    }

    async fn prune_one(&mut self, component: Component, object: Object) -> Result<(), Halt> {
        let deleted = self.delete(&object, object.body(), false).await;
        if deleted.map_err(|halt| self.failed(Operation::Remove, component, &object, halt))? {
            self.report(component, &object, ObjectStep::Deleted);
        }
        Ok(())
    }

    /// Why a namespace or definition has to stay although the deployment no longer has it.
    async fn needed(&mut self, object: &Object, gone: &BTreeSet<String>) -> Result<Option<String>, Halt> {
        if object.kind().group_kind() == DEFINITION {
            let used = inventory::is_used(&self.api_server, object).await? && !self.settings.force;
            return Ok(used.then(|| "objects of this kind exist".to_owned()));
        }
        Ok(match occupied(self, object, gone, &[]).await? {
            NamespaceState::Occupied(reason) => Some(reason),
            NamespaceState::Free | NamespaceState::Shared => None,
        })
    }
}
