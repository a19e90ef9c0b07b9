//! The state of the fake runtime: in go requests and the time they came at, out come their effects and views of
//! what is there. It never reads the clock, sleeps or does I/O, so that every sequence of calls can be replayed
//! in a test.
//!
//! A container's end is a date set when it starts or is stopped; whether it runs is computed on request.
//! Times are Unix times in nanoseconds, as on the wire. Refusals are the gRPC statuses the kubelet knows from real
//! runtimes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use tonic::Status;

use super::HANDLERS;
use super::address::Range;
use super::api;
use super::behaviour::{Behaviour, Run};
use super::image;
use super::snapshot::{ContainerView, SandboxView, Snapshot, State};

/// Exit code of a process killed by signal 9, as a shell would report it.
const KILLED: i32 = 137;

#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) config: api::PodSandboxConfig,
    pub(super) handler: String,
    pub(super) created_at: i64,
    pub(super) ready: bool,
    pub(super) ip: Option<Ipv4Addr>,
    /// Orders what was made within one tick of the clock.
    serial: u64,
}

#[derive(Debug)]
pub(super) struct Container {
    pub(super) sandbox: String,
    pub(super) config: api::ContainerConfig,
    /// Absolute path, or nothing when the kubelet wants no log.
    pub(super) log_path: Option<String>,
    pub(super) created_at: i64,
    pub(super) behaviour: Behaviour,
    start: Option<Start>,
    serial: u64,
}

#[derive(Debug, Clone, Copy)]
struct Start {
    at: i64,
    end: Option<End>,
}

#[derive(Debug, Clone, Copy)]
struct End {
    at: i64,
    code: i32,
}

/// Sandboxes, containers and images by id.
#[derive(Debug)]
pub(super) struct Store {
    sandboxes: BTreeMap<String, Sandbox>,
    containers: BTreeMap<String, Container>,
    /// Names that were asked for: every image exists as soon as it is wanted.
    images: BTreeSet<String>,
    range: Range,
    seed: u64,
    serial: u64,
}

impl Container {
    pub(super) fn state(&self, now: i64) -> State {
        match self.start {
            None => State::Created,
            Some(Start { end: Some(end), .. }) if end.at <= now => {
                State::Exited { finished_at: end.at, exit_code: end.code }
            }
            Some(_) => State::Running,
        }
    }

    pub(super) fn started_at(&self) -> i64 {
        self.start.map_or(0, |start| start.at)
    }

    pub(super) fn name(&self) -> &str {
        self.config.metadata.as_ref().map_or("", |metadata| &metadata.name)
    }

    pub(super) fn attempt(&self) -> u32 {
        self.config.metadata.as_ref().map_or(0, |metadata| metadata.attempt)
    }

    pub(super) fn resources(&self) -> api::LinuxContainerResources {
        self.config.linux.as_ref().and_then(|linux| linux.resources.clone()).unwrap_or_default()
    }

    /// Ends at `at` if it would not have ended by then anyway; returns when it ends.
    fn end(&mut self, at: i64, code: i32) -> i64 {
        match &mut self.start {
            None => at,
            Some(Start { end: Some(end), .. }) if end.at <= at => end.at,
            Some(start) => {
                start.end = Some(End { at, code });
                at
            }
        }
    }

    fn view(&self, id: &str, now: i64) -> ContainerView {
        ContainerView {
            id: id.to_owned(),
            name: self.name().to_owned(),
            attempt: self.attempt(),
            state: self.state(now),
            pid: None,
            started_at: self.started_at(),
            behaviour: self.behaviour,
            resources: self.resources(),
            devices: self.config.devices.clone(),
            cdi_devices: self.config.cdi_devices.iter().map(|device| device.name.clone()).collect(),
            annotations: self.config.annotations.clone(),
            env: self.config.envs.iter().map(|env| (env.key.clone(), env.value.clone())).collect(),
        }
    }
}

impl Store {
    /// Empty; ids of stores with different seeds do not meet.
    pub(super) fn new(seed: u64, (address, prefix): (Ipv4Addr, u8)) -> Self {
        Self {
            sandboxes: BTreeMap::new(),
            containers: BTreeMap::new(),
            images: BTreeSet::new(),
            range: Range::new(address, prefix),
            seed,
            serial: 0,
        }
    }

    /// Takes new addresses from here on; those in use stay.
    pub(super) fn set_pod_cidr(&mut self, cidr: &str) -> Result<(), Status> {
        let bad =
            || Status::invalid_argument(format!("pod_cidr: {cidr:?} has no IPv4 network of 8 to 30 bits"));
        self.range = Range::parse(cidr).ok_or_else(bad)?;
        Ok(())
    }

    pub(super) fn run_sandbox(
        &mut self,
        config: api::PodSandboxConfig,
        handler: String,
        now: i64,
    ) -> Result<String, Status> {
        let Some(metadata) = &config.metadata else {
            return Err(Status::invalid_argument("config.metadata: missing"));
        };
        if !HANDLERS.contains(&handler.as_str()) {
            return Err(Status::not_found(format!("runtime_handler: {handler:?} is none of {HANDLERS:?}")));
        }
        if self.sandboxes.values().any(|other| other.config.metadata.as_ref() == Some(metadata)) {
            let (namespace, name, attempt) = (&metadata.namespace, &metadata.name, metadata.attempt);
            return Err(Status::already_exists(format!(
                "sandbox {namespace}/{name} attempt {attempt} exists"
            )));
        }
        let ip = if host_network(&config) { None } else { Some(self.address()?) };
        let (id, serial) = self.next_id();
        self.sandboxes
            .insert(id.clone(), Sandbox { config, handler, created_at: now, ready: true, ip, serial });
        Ok(id)
    }

    /// Kills what still runs in it. Stopping twice or what never was is fine, as CRI wants.
    pub(super) fn stop_sandbox(&mut self, id: &str, now: i64) {
        if let Some(sandbox) = self.sandboxes.get_mut(id) {
            sandbox.ready = false;
            for container in self.containers.values_mut().filter(|container| container.sandbox == id) {
                container.end(now, KILLED);
            }
        }
    }

    /// Stops all of them.
    pub(super) fn stop_all(&mut self, now: i64) {
        let ids: Vec<String> = self.sandboxes.keys().cloned().collect();
        ids.iter().for_each(|id| self.stop_sandbox(id, now));
    }

    /// Removes it with its containers, running or not.
    pub(super) fn remove_sandbox(&mut self, id: &str) {
        self.sandboxes.remove(id);
        self.containers.retain(|_, container| container.sandbox != id);
    }

    pub(super) fn sandbox(&self, id: &str) -> Result<&Sandbox, Status> {
        self.sandboxes.get(id).ok_or_else(|| Status::not_found(format!("no sandbox {id:?}")))
    }

    /// Newest first, as the kubelet sorts them.
    pub(super) fn sandboxes(&self) -> Vec<(&str, &Sandbox)> {
        let mut all: Vec<_> = self.sandboxes.iter().map(|(id, sandbox)| (id.as_str(), sandbox)).collect();
        all.sort_by_key(|(_, sandbox)| std::cmp::Reverse(sandbox.serial));
        all
    }

    pub(super) fn update_sandbox(
        &mut self,
        id: &str,
        overhead: Option<api::LinuxContainerResources>,
        resources: Option<api::LinuxContainerResources>,
    ) -> Result<(), Status> {
        self.sandbox(id)?;
        if let Some(sandbox) = self.sandboxes.get_mut(id) {
            let linux = sandbox.config.linux.get_or_insert_default();
            merge(linux.overhead.get_or_insert_default(), overhead.unwrap_or_default());
            merge(linux.resources.get_or_insert_default(), resources.unwrap_or_default());
        }
        Ok(())
    }

    pub(super) fn create_container(
        &mut self,
        sandbox_id: &str,
        config: api::ContainerConfig,
        defaults: Option<Behaviour>,
        now: i64,
    ) -> Result<String, Status> {
        let sandbox = self.sandbox(sandbox_id)?;
        let Some(metadata) = &config.metadata else {
            return Err(Status::invalid_argument("config.metadata: missing"));
        };
        if !sandbox.ready {
            return Err(Status::failed_precondition(format!("sandbox {sandbox_id:?} is stopped")));
        }
        let twin = |other: &Container| {
            other.sandbox == sandbox_id && other.config.metadata.as_ref() == Some(metadata)
        };
        if self.containers.values().any(twin) {
            let (name, attempt) = (&metadata.name, metadata.attempt);
            return Err(Status::already_exists(format!("container {name} attempt {attempt} exists")));
        }
        // A real program does what it does.
        let of = |defaults| Behaviour::of(defaults, &sandbox.config.annotations, &config);
        let behaviour = defaults.map(of).transpose().map_err(Status::invalid_argument)?.unwrap_or_default();
        let folder = &sandbox.config.log_directory;
        let logs = !folder.is_empty() && !config.log_path.is_empty();
        let log_path = logs.then(|| format!("{folder}/{}", config.log_path));
        let (id, serial) = self.next_id();
        let sandbox = sandbox_id.to_owned();
        let container =
            Container { sandbox, config, log_path, created_at: now, behaviour, start: None, serial };
        self.containers.insert(id.clone(), container);
        Ok(id)
    }

    pub(super) fn start_container(&mut self, id: &str, now: i64) -> Result<(), Status> {
        let container = self.container(id)?;
        if container.start.is_some() {
            return Err(Status::failed_precondition(format!("container {id:?} was started before")));
        }
        if !self.sandbox(&container.sandbox)?.ready {
            return Err(Status::failed_precondition(format!("the sandbox of container {id:?} is stopped")));
        }
        if let Some(container) = self.containers.get_mut(id) {
            let end = match container.behaviour.run {
                Run::Forever => None,
                Run::For(time, code) => Some(End { at: after(now, time), code }),
            };
            container.start = Some(Start { at: now, end });
        }
        Ok(())
    }

    /// Its process has ended, or could not be started.
    pub(super) fn exited(&mut self, id: &str, code: i32, now: i64) {
        if let Some(container) = self.containers.get_mut(id) {
            container.end(now, code);
        }
    }

    /// Asks it to end, and kills it after `grace`; returns when it will have ended.
    pub(super) fn stop_container(&mut self, id: &str, grace: Duration, now: i64) -> Result<i64, Status> {
        self.container(id)?;
        Ok(self.containers.get_mut(id).map_or(now, |container| {
            let asked = container.behaviour.stop_delay;
            let code = if asked <= grace { 0 } else { KILLED };
            container.end(after(now, asked.min(grace)), code)
        }))
    }

    /// Removes it, running or not, and returns where its log was; removing what is not there is fine, as CRI wants.
    pub(super) fn remove_container(&mut self, id: &str) -> Option<String> {
        self.containers.remove(id)?.log_path
    }

    /// Ids of a sandbox's containers.
    pub(super) fn containers_of(&self, sandbox: &str) -> Vec<String> {
        let own = self.containers.iter().filter(|(_, container)| container.sandbox == sandbox);
        own.map(|(id, _)| id.clone()).collect()
    }

    pub(super) fn container(&self, id: &str) -> Result<&Container, Status> {
        self.containers.get(id).ok_or_else(|| Status::not_found(format!("no container {id:?}")))
    }

    /// Newest first, as the kubelet sorts them.
    pub(super) fn containers(&self) -> Vec<(&str, &Container)> {
        let mut all: Vec<_> =
            self.containers.iter().map(|(id, container)| (id.as_str(), container)).collect();
        all.sort_by_key(|(_, container)| std::cmp::Reverse(container.serial));
        all
    }

    pub(super) fn update_container(
        &mut self,
        id: &str,
        update: api::LinuxContainerResources,
    ) -> Result<(), Status> {
        self.container(id)?;
        if let Some(container) = self.containers.get_mut(id) {
            let linux = container.config.linux.get_or_insert_default();
            merge(linux.resources.get_or_insert_default(), update);
        }
        Ok(())
    }

    /// The name of the image behind a name, which exists from now on, or behind an id, which must exist.
    pub(super) fn find_image<'a>(&'a mut self, reference: &'a str) -> Option<&'a str> {
        if image::is_id(reference) {
            return self.images().find(|name| image::id(name) == reference);
        }
        self.images.insert(reference.to_owned());
        Some(reference)
    }

    /// Forgets an image by its name or id.
    pub(super) fn remove_image(&mut self, reference: &str) {
        self.images.retain(|name| name != reference && image::id(name) != reference);
    }

    pub(super) fn images(&self) -> impl Iterator<Item = &str> {
        self.images.iter().map(String::as_str)
    }

    pub(super) fn snapshot(&self, now: i64) -> Snapshot {
        let containers = self.containers();
        let of = |sandbox: &str| {
            let own = containers.iter().rev().filter(|(_, container)| container.sandbox == sandbox);
            own.map(|(id, container)| container.view(id, now)).collect()
        };
        let view = |&(id, sandbox): &(&str, &Sandbox)| {
            let metadata = sandbox.config.metadata.clone().unwrap_or_default();
            SandboxView {
                id: id.to_owned(),
                namespace: metadata.namespace,
                name: metadata.name,
                uid: metadata.uid,
                attempt: metadata.attempt,
                ready: sandbox.ready,
                ip: sandbox.ip,
                containers: of(id),
            }
        };
        Snapshot { sandboxes: self.sandboxes().iter().rev().map(view).collect() }
    }

    fn address(&mut self) -> Result<Ipv4Addr, Status> {
        let used: BTreeSet<_> = self
            .sandboxes
            .values()
            .filter(|sandbox| sandbox.ready)
            .filter_map(|sandbox| sandbox.ip)
            .collect();
        self.range.take(&used).ok_or_else(|| Status::resource_exhausted("no free pod address"))
    }

    /// A fresh id of 64 hexadecimal digits, and its place in the order of creation.
    fn next_id(&mut self) -> (String, u64) {
        self.serial += 1;
        let words = (0..4).map(|word| image::scramble(self.seed ^ image::scramble(self.serial * 4 + word)));
        (words.map(|word| format!("{word:016x}")).collect(), self.serial)
    }
}

fn after(now: i64, time: Duration) -> i64 {
    now.saturating_add(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
}

pub(super) fn host_network(config: &api::PodSandboxConfig) -> bool {
    let linux = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let options = linux.and_then(|context| context.namespace_options.as_ref());
    options.is_some_and(|options| options.network() == api::NamespaceMode::Node)
}

/// Takes over what the update says; zero and empty say nothing.
fn merge(old: &mut api::LinuxContainerResources, update: api::LinuxContainerResources) {
    fn take<T: Default + PartialEq>(old: &mut T, new: T) {
        if new != T::default() {
            *old = new;
        }
    }
    take(&mut old.cpu_period, update.cpu_period);
    take(&mut old.cpu_quota, update.cpu_quota);
    take(&mut old.cpu_shares, update.cpu_shares);
    take(&mut old.memory_limit_in_bytes, update.memory_limit_in_bytes);
    take(&mut old.oom_score_adj, update.oom_score_adj);
    take(&mut old.cpuset_cpus, update.cpuset_cpus);
    take(&mut old.cpuset_mems, update.cpuset_mems);
    take(&mut old.hugepage_limits, update.hugepage_limits);
    take(&mut old.memory_swap_limit_in_bytes, update.memory_swap_limit_in_bytes);
    old.unified.extend(update.unified);
}

#[cfg(test)]
mod tests;
