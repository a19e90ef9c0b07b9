//! The store's entries as the messages of the interface: filters in, answers out. No state of its own.

use std::collections::BTreeMap;

use super::api;
use super::image::{self, USER};
use super::snapshot::State;
use super::store::{Container, Sandbox, host_network};

type Labels = BTreeMap<String, String>;

pub(super) fn sandbox_matches(filter: &api::PodSandboxFilter, id: &str, sandbox: &Sandbox) -> bool {
    (filter.id.is_empty() || filter.id == id)
        && filter.state.as_ref().is_none_or(|state| state.state() == sandbox_state(sandbox))
        && selected(&filter.label_selector, &sandbox.config.labels)
}

pub(super) fn container_matches(
    filter: &api::ContainerFilter,
    id: &str,
    container: &Container,
    now: i64,
) -> bool {
    (filter.id.is_empty() || filter.id == id)
        && (filter.pod_sandbox_id.is_empty() || filter.pod_sandbox_id == container.sandbox)
        && filter.state.as_ref().is_none_or(|state| state.state() == container_state(container.state(now)))
        && selected(&filter.label_selector, &container.config.labels)
}

pub(super) fn selected(selector: &Labels, labels: &Labels) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

pub(super) fn sandbox_state(sandbox: &Sandbox) -> api::PodSandboxState {
    if sandbox.ready { api::PodSandboxState::SandboxReady } else { api::PodSandboxState::SandboxNotready }
}

pub(super) fn container_state(state: State) -> api::ContainerState {
    match state {
        State::Created => api::ContainerState::ContainerCreated,
        State::Running => api::ContainerState::ContainerRunning,
        State::Exited { .. } => api::ContainerState::ContainerExited,
    }
}

pub(super) fn sandbox(id: &str, sandbox: &Sandbox) -> api::PodSandbox {
    api::PodSandbox {
        id: id.to_owned(),
        metadata: sandbox.config.metadata.clone(),
        state: sandbox_state(sandbox).into(),
        created_at: sandbox.created_at,
        labels: sandbox.config.labels.clone(),
        annotations: sandbox.config.annotations.clone(),
        runtime_handler: sandbox.handler.clone(),
    }
}

pub(super) fn sandbox_status(id: &str, sandbox: &Sandbox) -> api::PodSandboxStatus {
    let network =
        if host_network(&sandbox.config) { api::NamespaceMode::Node } else { api::NamespaceMode::Pod };
    let options = api::NamespaceOption { network: network.into(), ..api::NamespaceOption::default() };
    // A stopped sandbox has no network any more; the kubelet keeps showing the address it knew.
    let ip = sandbox.ip.filter(|_| sandbox.ready).map(|ip| ip.to_string()).unwrap_or_default();
    api::PodSandboxStatus {
        id: id.to_owned(),
        metadata: sandbox.config.metadata.clone(),
        state: sandbox_state(sandbox).into(),
        created_at: sandbox.created_at,
        network: Some(api::PodSandboxNetworkStatus { ip, additional_ips: Vec::new() }),
        linux: Some(api::LinuxPodSandboxStatus {
            namespaces: Some(api::Namespace { options: Some(options) }),
        }),
        labels: sandbox.config.labels.clone(),
        annotations: sandbox.config.annotations.clone(),
        runtime_handler: sandbox.handler.clone(),
    }
}

pub(super) fn container(id: &str, container: &Container, now: i64) -> api::Container {
    let name = image_name(container);
    api::Container {
        id: id.to_owned(),
        pod_sandbox_id: container.sandbox.clone(),
        metadata: container.config.metadata.clone(),
        image: container.config.image.clone(),
        image_ref: image::id(name),
        state: container_state(container.state(now)).into(),
        created_at: container.created_at,
        labels: container.config.labels.clone(),
        annotations: container.config.annotations.clone(),
        image_id: image::id(name),
    }
}

pub(super) fn container_status(id: &str, container: &Container, now: i64) -> api::ContainerStatus {
    let state = container.state(now);
    let (finished_at, exit_code, reason) = match state {
        State::Exited { finished_at, exit_code: 0 } => (finished_at, 0, "Completed"),
        State::Exited { finished_at, exit_code } => (finished_at, exit_code, "Error"),
        State::Created | State::Running => (0, 0, ""),
    };
    let name = image_name(container);
    let user = api::LinuxContainerUser { uid: USER, gid: USER, supplemental_groups: vec![USER] };
    api::ContainerStatus {
        id: id.to_owned(),
        metadata: container.config.metadata.clone(),
        state: container_state(state).into(),
        created_at: container.created_at,
        started_at: container.started_at(),
        finished_at,
        exit_code,
        image: Some(api::ImageSpec { image: name.to_owned(), ..api::ImageSpec::default() }),
        image_ref: image::id(name),
        reason: reason.to_owned(),
        message: String::new(),
        labels: container.config.labels.clone(),
        annotations: container.config.annotations.clone(),
        mounts: container.config.mounts.clone(),
        log_path: container.log_path.clone().unwrap_or_default(),
        resources: Some(api::ContainerResources { linux: Some(container.resources()) }),
        image_id: image::id(name),
        user: Some(api::ContainerUser { linux: Some(user) }),
    }
}

/// No process, so no use: a truthful zero, stamped with the time it was asked for.
pub(super) fn container_stats(
    id: &str,
    container: &Container,
    mountpoint: &str,
    now: i64,
) -> api::ContainerStats {
    api::ContainerStats {
        attributes: Some(api::ContainerAttributes {
            id: id.to_owned(),
            metadata: container.config.metadata.clone(),
            labels: container.config.labels.clone(),
            annotations: container.config.annotations.clone(),
        }),
        cpu: Some(no_cpu(now)),
        memory: Some(no_memory(now)),
        writable_layer: Some(filesystem(mountpoint, 0, now)),
    }
}

pub(super) fn sandbox_stats(
    id: &str,
    sandbox: &Sandbox,
    containers: Vec<api::ContainerStats>,
    now: i64,
) -> api::PodSandboxStats {
    api::PodSandboxStats {
        attributes: Some(api::PodSandboxAttributes {
            id: id.to_owned(),
            metadata: sandbox.config.metadata.clone(),
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
        }),
        linux: Some(api::LinuxPodSandboxStats {
            cpu: Some(no_cpu(now)),
            memory: Some(no_memory(now)),
            process: Some(api::ProcessUsage { timestamp: now, process_count: zero() }),
            containers,
        }),
    }
}

pub(super) fn filesystem(mountpoint: &str, used_bytes: u64, now: i64) -> api::FilesystemUsage {
    api::FilesystemUsage {
        timestamp: now,
        fs_id: Some(api::FilesystemIdentifier { mountpoint: mountpoint.to_owned() }),
        used_bytes: Some(api::UInt64Value { value: used_bytes }),
        inodes_used: zero(),
    }
}

/// The name the pod asked for; the kubelet puts the id it resolved to beside it.
fn image_name(container: &Container) -> &str {
    container.config.image.as_ref().map_or("", image_named)
}

/// The name the pod asked for.
pub(super) fn image_named(image: &api::ImageSpec) -> &str {
    if image.user_specified_image.is_empty() { &image.image } else { &image.user_specified_image }
}

fn no_cpu(now: i64) -> api::CpuUsage {
    api::CpuUsage { timestamp: now, usage_core_nano_seconds: zero(), usage_nano_cores: zero() }
}

fn no_memory(now: i64) -> api::MemoryUsage {
    api::MemoryUsage {
        timestamp: now,
        working_set_bytes: zero(),
        available_bytes: None,
        usage_bytes: zero(),
        rss_bytes: zero(),
        page_faults: zero(),
        major_page_faults: zero(),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "every number in these messages is optional")]
fn zero() -> Option<api::UInt64Value> {
    Some(api::UInt64Value { value: 0 })
}
