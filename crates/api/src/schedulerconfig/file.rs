//! The file as a whole: decoding, defaults and validation, field by field.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::decode::{Errors, Fields, Position};
use super::{
    API_VERSION, ClientConnection, ConfigError, ExtensionPoint, FieldError, InTreeArgs, KIND, LeaderElection,
    NUMA_PLUGIN, Plugin, PluginSet, Plugins, Profile, SchedulerConfig, extender, numa,
};
use crate::goduration::GoDuration;

/// Plugins kube-scheduler once had; naming one is an error there too.
const REMOVED_PLUGINS: [&str; 4] = ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];

pub(super) fn parse(text: &str) -> Result<SchedulerConfig, ConfigError> {
    let value: Value = match serde_saphyr::from_str(text) {
        Ok(value) => value,
        Err(error) => return Err(ConfigError { errors: vec![FieldError::Syntax(syntax(&error))] }),
    };
    let mut errors = Errors::default();
    let config = document(Fields::of(value, Position::default(), &mut errors), &mut errors);
    if errors.0.is_empty() { Ok(config) } else { Err(ConfigError { errors: errors.0 }) }
}

/// The parser's message for people, on one line: no excerpt of the file, no hints for programmers.
fn syntax(error: &serde_saphyr::Error) -> String {
    let message = error.without_snippet().render_with_formatter(&serde_saphyr::UserMessageFormatter);
    message.trim_start_matches("error: ").replace('\n', " ")
}

fn document(mut fields: Fields, errors: &mut Errors) -> SchedulerConfig {
    for (name, allowed) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        match fields.string(name, errors) {
            Some(found) if found == allowed => {}
            Some(found) => {
                errors.invalid(
                    &fields.at.field(name),
                    format!("Invalid value: {found:?}: allowed is {allowed}"),
                );
            }
            None => errors.invalid(&fields.at.field(name), format!("Required value: allowed is {allowed}")),
        }
    }
    let default = SchedulerConfig::default();
    let config = SchedulerConfig {
        parallelism: parallelism(&mut fields, errors).unwrap_or(default.parallelism),
        leader_election: leader_election(fields.object("leaderElection", errors), errors),
        client_connection: client_connection(fields.object("clientConnection", errors), errors),
        enable_profiling: fields.boolean("enableProfiling", errors).unwrap_or(default.enable_profiling),
        enable_contention_profiling: fields
            .boolean("enableContentionProfiling", errors)
            .unwrap_or(default.enable_contention_profiling),
        percentage_of_nodes_to_score: percentage(&mut fields, errors),
        delay_cache_until_active: fields.boolean("delayCacheUntilActive", errors).unwrap_or(false),
        profiles: profiles(&mut fields, errors),
        ..default
    };
    let mut config = backoff(config, &mut fields, errors);
    config.extenders = extender::read(&mut fields, errors);
    ignore_managed(&mut config);
    fields.finish(errors);
    config
}

/// Tells NodeResourcesFit of all profiles which resources only extenders check (kube-scheduler 1.36 `buildExtenders`
/// and `New`).
fn ignore_managed(config: &mut SchedulerConfig) {
    let managed = config.extenders.iter().flat_map(|extender| &extender.managed_resources);
    let ignored = managed.filter(|resource| resource.ignored_by_scheduler).map(|resource| &resource.name);
    for profile in &mut config.profiles {
        profile.in_tree.fit.ignored_resources.extend(ignored.clone().cloned());
    }
}

fn parallelism(fields: &mut Fields, errors: &mut Errors) -> Option<u32> {
    let number = fields.integer32("parallelism", errors)?;
    if number <= 0 {
        let problem = format!("Invalid value: {number}: should be an integer value greater than zero");
        errors.invalid(&fields.at.field("parallelism"), problem);
    }
    u32::try_from(number).ok()
}

fn percentage(fields: &mut Fields, errors: &mut Errors) -> Option<u8> {
    let number = fields.integer32("percentageOfNodesToScore", errors)?;
    let valid = u8::try_from(number).ok().filter(|n| *n <= 100);
    if valid.is_none() {
        let problem = format!("Invalid value: {number}: not in valid range [0-100]");
        errors.invalid(&fields.at.field("percentageOfNodesToScore"), problem);
    }
    valid
}

fn backoff(mut config: SchedulerConfig, fields: &mut Fields, errors: &mut Errors) -> SchedulerConfig {
    let (first, most) = ("podInitialBackoffSeconds", "podMaxBackoffSeconds");
    if let Some(seconds) = fields.integer(first, errors) {
        config.pod_initial_backoff_seconds = u64::try_from(seconds).unwrap_or(0);
        if seconds <= 0 {
            errors.invalid(
                &fields.at.field(first),
                format!("Invalid value: {seconds}: must be greater than 0"),
            );
        }
    }
    if let Some(seconds) = fields.integer(most, errors) {
        config.pod_max_backoff_seconds = u64::try_from(seconds).unwrap_or(0);
    }
    if config.pod_max_backoff_seconds < config.pod_initial_backoff_seconds {
        let seconds = config.pod_max_backoff_seconds;
        let problem =
            format!("Invalid value: {seconds}: must be greater than or equal to PodInitialBackoffSeconds");
        errors.invalid(&fields.at.field(most), problem);
    }
    config
}

/// An empty text or a zero duration means the default, as in component-base.
fn leader_election(mut fields: Fields, errors: &mut Errors) -> LeaderElection {
    let default = LeaderElection::default();
    let text = |fields: &mut Fields, name, default: String, errors: &mut Errors| {
        fields.string(name, errors).filter(|text| !text.is_empty()).unwrap_or(default)
    };
    let time = |fields: &mut Fields, name, default: GoDuration, errors: &mut Errors| {
        fields.duration(name, errors).filter(|duration| *duration != GoDuration(0)).unwrap_or(default)
    };
    let lock = text(&mut fields, "resourceLock", "leases".to_owned(), errors);
    let election = LeaderElection {
        leader_elect: fields.boolean("leaderElect", errors).unwrap_or(default.leader_elect),
        lease_duration: time(&mut fields, "leaseDuration", default.lease_duration, errors),
        renew_deadline: time(&mut fields, "renewDeadline", default.renew_deadline, errors),
        retry_period: time(&mut fields, "retryPeriod", default.retry_period, errors),
        resource_name: text(&mut fields, "resourceName", default.resource_name, errors),
        resource_namespace: text(&mut fields, "resourceNamespace", default.resource_namespace, errors),
    };
    if election.leader_elect {
        if lock != "leases" {
            let problem = format!("Invalid value: {lock:?}: resourceLock value must be \"leases\"");
            errors.invalid(&fields.at.field("resourceLock"), problem);
        }
        check_times(&election, &fields.at, errors);
    }
    fields.finish(errors);
    election
}

/// The last rule is client-go's: it refuses to start an election that could never renew in time.
fn check_times(election: &LeaderElection, at: &Position, errors: &mut Errors) {
    let (lease, renew, retry) = (election.lease_duration, election.renew_deadline, election.retry_period);
    for (name, time) in [("leaseDuration", lease), ("renewDeadline", renew), ("retryPeriod", retry)] {
        if time <= GoDuration(0) {
            errors.invalid(&at.field(name), format!("Invalid value: {time}: must be greater than zero"));
        }
    }
    if lease <= renew {
        let problem = format!("Invalid value: {lease}: must be greater than renewDeadline ({renew})");
        errors.invalid(&at.field("leaseDuration"), problem);
    }
    if renew.0 <= retry.0.saturating_add(retry.0 / 5) {
        let problem = format!("Invalid value: {renew}: must be greater than 1.2 times retryPeriod ({retry})");
        errors.invalid(&at.field("renewDeadline"), problem);
    }
}

/// An empty text or zero means the default, as in kube-scheduler.
fn client_connection(mut fields: Fields, errors: &mut Errors) -> ClientConnection {
    let default = ClientConnection::default();
    let burst = fields.integer32("burst", errors).unwrap_or(0);
    if burst < 0 {
        errors.invalid(&fields.at.field("burst"), format!("Invalid value: {burst}: must be non-negative"));
    }
    let connection = ClientConnection {
        kubeconfig: fields.string("kubeconfig", errors).unwrap_or_default(),
        accept_content_types: fields.string("acceptContentTypes", errors).unwrap_or_default(),
        content_type: fields
            .string("contentType", errors)
            .filter(|text| !text.is_empty())
            .unwrap_or(default.content_type),
        qps: fields.float("qps", errors).filter(|qps| *qps != 0.0).unwrap_or(default.qps),
        burst: u32::try_from(burst).ok().filter(|burst| *burst != 0).unwrap_or(default.burst),
    };
    fields.finish(errors);
    connection
}

fn profiles(fields: &mut Fields, errors: &mut Errors) -> Vec<Profile> {
    let objects = fields.objects("profiles", errors);
    if objects.is_empty() {
        return vec![Profile::default()];
    }
    let only = objects.len() == 1;
    let places: Vec<_> = objects.iter().map(|object| object.at.clone()).collect();
    let profiles: Vec<_> = objects.into_iter().map(|object| profile(object, only, errors)).collect();
    for (i, (profile, at)) in profiles.iter().zip(&places).enumerate() {
        let name = &profile.scheduler_name;
        if !name.is_empty() && profiles[..i].iter().any(|other| other.scheduler_name == *name) {
            errors.invalid(&at.field("schedulerName"), format!("Duplicate value: {name:?}"));
        }
        let sort =
            |profile: &Profile| profile.plugins.at(ExtensionPoint::QueueSort).cloned().unwrap_or_default();
        let canon = sort(&profiles[0]);
        if sort(profile) != canon {
            errors.invalid(&at.field("plugins").field("queueSort"), "must be the same for all profiles");
        }
        if i == 0 && canon.enabled.len() > 1 {
            let problem = "only one queue sort plugin can be enabled";
            errors.invalid(&at.field("plugins").field("queueSort").field("enabled"), problem);
        }
    }
    profiles
}

fn profile(mut fields: Fields, only: bool, errors: &mut Errors) -> Profile {
    let default = Profile::default();
    let named = fields.string("schedulerName", errors);
    let scheduler_name = named.unwrap_or(if only { default.scheduler_name } else { String::new() });
    if scheduler_name.is_empty() {
        errors.invalid(&fields.at.field("schedulerName"), "Required value");
    }
    let percentage_of_nodes_to_score = percentage(&mut fields, errors);
    let plugins = plugins(fields.object("plugins", errors), errors);
    let (mut numa_args, mut in_tree_args, mut other_args) = (None, InTreeArgs::default(), BTreeMap::new());
    let mut seen = BTreeSet::new();
    for mut entry in fields.objects("pluginConfig", errors) {
        let name = entry.string("name", errors).unwrap_or_default();
        let args = entry.raw("args").unwrap_or_default();
        let context = format!("decoding .{}: decoding args for plugin {name}: ", entry.at.path);
        if !seen.insert(name.clone()) {
            errors.invalid(&entry.at, format!("Duplicate value: {name:?}"));
        } else if name == NUMA_PLUGIN {
            numa_args = Some(numa::args(args, context, errors));
        } else if let Err(args) = in_tree_args.take(&name, args, context, errors) {
            check_plugin(&name, &entry.at, errors);
            other_args.insert(name, args);
        }
        entry.finish(errors);
    }
    fields.finish(errors);
    Profile {
        scheduler_name,
        percentage_of_nodes_to_score,
        plugins,
        numa: numa_args.unwrap_or_default(),
        in_tree: in_tree_args,
        other_args,
    }
}

fn plugins(mut fields: Fields, errors: &mut Errors) -> Plugins {
    let mut plugins = BTreeMap::new();
    for point in ExtensionPoint::ALL {
        let Some(value) = fields.raw(point.as_str()) else { continue };
        let mut set = Fields::of(value, fields.at.field(point.as_str()), errors);
        let mut entries = |list, errors: &mut Errors| {
            let mut entries = Vec::new();
            for mut entry in set.objects(list, errors) {
                let name = entry.string("name", errors).unwrap_or_default();
                check_plugin(&name, &entry.at, errors);
                entries.push(Plugin { name, weight: entry.integer32("weight", errors) });
                entry.finish(errors);
            }
            entries
        };
        let enabled = entries("enabled", errors);
        let disabled = entries("disabled", errors).into_iter().map(|plugin| plugin.name).collect();
        set.finish(errors);
        plugins.insert(point, PluginSet { enabled, disabled });
    }
    fields.finish(errors);
    Plugins(plugins)
}

fn check_plugin(name: &str, at: &Position, errors: &mut Errors) {
    if name.is_empty() {
        errors.invalid(&at.field("name"), "Required value");
    } else if REMOVED_PLUGINS.contains(&name) {
        errors.invalid(at, format!("Invalid value: {name:?}: was invalid in version \"v1\""));
    }
}
