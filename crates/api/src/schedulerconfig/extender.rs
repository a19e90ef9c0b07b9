//! Extenders: other programs that kube-scheduler asks over HTTP.
//!
//! In: the list `extenders`. Out: all fields, checked. Never: a call. Source: kube-scheduler 1.36 `config.Extender`,
//! `validateExtenders`.

use std::collections::BTreeSet;

use super::decode::{Errors, Fields, Position};
use super::in_tree::check_label;
use crate::goduration::GoDuration;

/// An extender.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extender {
    /// The URL before the verbs.
    pub url_prefix: String,
    /// The verb that filters nodes; empty: it does not.
    pub filter_verb: String,
    /// The verb that judges candidates for preemption; empty: it does not.
    pub preempt_verb: String,
    /// The verb that scores nodes; empty: it does not.
    pub prioritize_verb: String,
    /// The factor of its scores of 0 to 10; above zero where it scores.
    pub weight: i64,
    /// The verb that binds pods; empty: it does not.
    pub bind_verb: String,
    /// Whether an `https` URL without an authority is not verified, as in kube-scheduler.
    pub enable_https: bool,
    /// Certificates.
    pub tls: Option<ExtenderTls>,
    /// The longest time of a call; zero: five seconds.
    pub http_timeout: GoDuration,
    /// Whether it knows the nodes, so that calls name them only.
    pub node_cache_capable: bool,
    /// The resources whose pods it is asked about; empty: all pods.
    pub managed_resources: Vec<ManagedResource>,
    /// Whether pods are scheduled without it while it fails.
    pub ignorable: bool,
}

/// `tlsConfig` of an extender. Data is base64; it counts before the file.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ExtenderTls {
    /// Whether the server's certificate is not verified.
    pub insecure: bool,
    /// The name in the server's certificate; empty: the host of the URL.
    pub server_name: String,
    /// File with the client's certificate.
    pub cert_file: String,
    /// File with the client's key.
    pub key_file: String,
    /// File with authorities.
    pub ca_file: String,
    /// The client's certificate.
    pub cert_data: String,
    /// The client's key. A secret.
    pub key_data: String,
    /// Authorities.
    pub ca_data: String,
}

/// A resource that an extender manages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedResource {
    /// The name of an extended resource.
    pub name: String,
    /// Whether NodeResourcesFit does not check it.
    pub ignored_by_scheduler: bool,
}

impl std::fmt::Debug for ExtenderTls {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { insecure, server_name, cert_file, key_file, ca_file, .. } = self;
        let fields = (insecure, server_name, cert_file, key_file, ca_file);
        f.debug_tuple("ExtenderTls").field(&fields).finish_non_exhaustive()
    }
}

/// Reads the list.
pub(super) fn read(fields: &mut Fields, errors: &mut Errors) -> Vec<Extender> {
    let at = fields.at.field("extenders");
    let positioned: Vec<(Position, Extender)> = fields
        .objects("extenders", errors)
        .into_iter()
        .map(|fields| (fields.at.clone(), extender(fields, errors)))
        .collect();
    let mut names = BTreeSet::new();
    for (at, extender) in &positioned {
        if !extender.prioritize_verb.is_empty() && extender.weight <= 0 {
            let weight = extender.weight;
            let problem = format!("Invalid value: {weight}: must have a positive weight applied to it");
            errors.invalid(&at.field("weight"), problem);
        }
        for (i, resource) in extender.managed_resources.iter().enumerate() {
            let at = at.field("managedResources").index(i).field("name");
            let name = &resource.name;
            check_label(name, &at, errors);
            if !name.contains('/') || name.contains("kubernetes.io/") || name.starts_with("requests.") {
                let problem = format!("Invalid value: {name:?}: is an invalid extended resource name");
                errors.invalid(&at, problem);
            }
            if !names.insert(name.clone()) {
                let problem = format!("Invalid value: {name:?}: duplicate extender managed resource name");
                errors.invalid(&at, problem);
            }
        }
    }
    let extenders: Vec<Extender> = positioned.into_iter().map(|(_, extender)| extender).collect();
    let binders = extenders.iter().filter(|extender| !extender.bind_verb.is_empty()).count();
    if binders > 1 {
        let problem = format!(
            "Invalid value: \"found {binders} extenders implementing bind\": only one extender can implement bind"
        );
        errors.invalid(&at, problem);
    }
    extenders
}

fn extender(mut fields: Fields, errors: &mut Errors) -> Extender {
    let mut text = |name| fields.string(name, errors).unwrap_or_default();
    let (url_prefix, filter_verb, preempt_verb) =
        (text("urlPrefix"), text("filterVerb"), text("preemptVerb"));
    let (prioritize_verb, bind_verb) = (text("prioritizeVerb"), text("bindVerb"));
    if !["http://", "https://"].iter().any(|scheme| url_prefix.starts_with(scheme)) {
        let problem =
            format!("Invalid value: {url_prefix:?}: must be a URL that begins with http:// or https://");
        errors.invalid(&fields.at.field("urlPrefix"), problem);
    }
    let tls = fields.raw("tlsConfig").map(|value| {
        let at = fields.at.field("tlsConfig");
        tls(Fields::of(value, at, errors), errors)
    });
    let managed = fields.objects("managedResources", errors);
    let managed_resources = managed.into_iter().map(|fields| managed_resource(fields, errors)).collect();
    let http_timeout = fields.duration("httpTimeout", errors).unwrap_or_default();
    if http_timeout.to_std().is_none() {
        let problem = format!("Invalid value: {http_timeout}: must not be negative");
        errors.invalid(&fields.at.field("httpTimeout"), problem);
    }
    let extender = Extender {
        url_prefix,
        filter_verb,
        preempt_verb,
        prioritize_verb,
        weight: fields.integer("weight", errors).unwrap_or_default(),
        bind_verb,
        enable_https: fields.boolean("enableHTTPS", errors).unwrap_or_default(),
        tls,
        http_timeout,
        node_cache_capable: fields.boolean("nodeCacheCapable", errors).unwrap_or_default(),
        managed_resources,
        ignorable: fields.boolean("ignorable", errors).unwrap_or_default(),
    };
    fields.finish(errors);
    extender
}

fn tls(mut fields: Fields, errors: &mut Errors) -> ExtenderTls {
    let insecure = fields.boolean("insecure", errors).unwrap_or_default();
    let mut text = |name| fields.string(name, errors).unwrap_or_default();
    let tls = ExtenderTls {
        insecure,
        server_name: text("serverName"),
        cert_file: text("certFile"),
        key_file: text("keyFile"),
        ca_file: text("caFile"),
        cert_data: text("certData"),
        key_data: text("keyData"),
        ca_data: text("caData"),
    };
    fields.finish(errors);
    tls
}

fn managed_resource(mut fields: Fields, errors: &mut Errors) -> ManagedResource {
    let resource = ManagedResource {
        name: fields.string("name", errors).unwrap_or_default(),
        ignored_by_scheduler: fields.boolean("ignoredByScheduler", errors).unwrap_or_default(),
    };
    fields.finish(errors);
    resource
}
