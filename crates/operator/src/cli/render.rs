//! `tholepin render operator` and `render hardware`: the operator's own objects as text.
//!
//! In: the flags of `tholepin render`. Out: manifests on standard output. Never: a cluster, or a flag that the operator
//! would refuse.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args as _, Command};
use deployer::cli::render::Args;
use runtime::stderr;

use crate::manifests::{self, NAMESPACE, Options};

/// Flags of the operator that manifests fix, or that `render` has a flag of its own for, each with the reason.
const FIXED: [(&str, &str); 18] = [
    ("kubeconfig", "the pod's service account reaches the API server"),
    ("context", "the pod's service account reaches the API server"),
    ("namespace", "render has --namespace"),
    ("pod", "the pod states its own name"),
    ("controllers", "render operator and render hardware choose them, each with their rights"),
    ("metrics-bind-address", "Service and network policies name its port"),
    ("health-probe-bind-address", "probes name its port"),
    ("certificates", "the certificate is mounted there"),
    ("kubelet-token", "the pod's service account has the token"),
    ("kubelet-authority", "no such file is mounted; render has --kubelet-ca-config-map"),
    ("api-server-port", "render has it, and opens the port for the operator too"),
    ("api-server-cidr", "render has it, and limits the operator's own egress too"),
    ("kubelet-root-mount", "render has it"),
    ("kubelet-profile", "render has it"),
    ("kubelet-root", "render has it"),
    ("kubelet-config", "render has it"),
    ("kubelet-ca-config-map", "render has it"),
    ("kubelet-insecure", "render has it"),
];

/// Prints the operator's objects. Flags about exporters and schedulers have no effect but `--sched-type`: whether the
/// operator may grant the rights of the Go scheduler. Flags about kubelets and the operator's own reach its Deployment.
///
/// # Errors
/// When a flag's value is invalid, or standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = options(args, NAMESPACE)?;
    let platform = options.common.platform;
    if platform.is_openshift() && options.common.updater.kubelet.is_some() {
        bail!("flags about kubelets are for Kubernetes; on {platform} pools state them");
    }
    if !platform.is_openshift() {
        args.certificate_note(&options.common)
            .iter()
            .for_each(|note| stderr::line(format_args!("warning: {note}")));
    }
    args.print(&manifests::objects(&options))
}

/// Prints the objects of the operator with the controller of DeviceConfigs.
///
/// # Errors
/// In the same cases as [`run`].
pub fn hardware(args: &Args) -> anyhow::Result<ExitCode> {
    let options = options(args, ::hardware::manifests::NAMESPACE)?;
    if options.common.updater.kubelet.is_some() {
        bail!("flags about kubelets have no effect on the controller of DeviceConfigs");
    }
    args.print(&::hardware::manifests::objects(&options))
}

fn options(args: &Args, namespace: &str) -> anyhow::Result<Options> {
    let mut common = args.options()?;
    common.monitoring = args.monitoring().unwrap_or(common.platform.is_openshift());
    let namespace = args.namespace().unwrap_or(namespace).to_owned();
    Ok(Options { namespace, common, flags: flags(&args.operator_flag)? })
}

/// The flags, if the operator takes them and manifests do not fix them.
fn flags(stated: &[String]) -> anyhow::Result<Vec<String>> {
    for flag in stated {
        let name = flag.trim_start_matches('-').split('=').next().unwrap_or_default();
        if let Some((_, reason)) = FIXED.iter().find(|(fixed, _)| *fixed == name) {
            bail!("--operator-flag {flag}: --{name} is fixed: {reason}");
        }
    }
    let operator = super::Args::augment_args(Command::new("operator").no_binary_name(true));
    if let Err(error) = operator.try_get_matches_from(stated) {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        bail!("--operator-flag: {first}");
    }
    Ok(stated.to_vec())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn rendered(words: &[&str]) -> Result<Options, String> {
        let words = ["render", "operator"].iter().chain(words);
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        options(&cli.args, NAMESPACE).map_err(|error| error.to_string())
    }

    fn args(options: &Options) -> Vec<String> {
        let pod = manifests::deployment(options).spec.unwrap().template.spec.unwrap();
        pod.containers[0].args.clone().unwrap()
    }

    /// Values for the flags that `--operator-flag` sets.
    const VALUES: [(&str, &str); 10] = [
        ("platform", "kubernetes:1.36"),
        ("exporter-image", "example.com/rte:1"),
        ("forward-pool-conditions", ""),
        ("scheduler", "false"),
        ("driver-patience", "5m"),
        ("binding-patience", "2s"),
        ("leader-elect", "false"),
        ("v", "4"),
        ("logging-format", "json"),
        ("help", ""),
    ];

    /// Values for the flags that `render` has itself, and what the operator gets.
    const OWN: [(&str, &str, &str); 8] = [
        ("api-server-cidr", "10.0.0.0/8", "--api-server-cidr=10.0.0.0/8"),
        ("kubelet-root-mount", "", "--kubelet-root-mount"),
        ("api-server-port", "8443", "--api-server-port=8443"),
        ("kubelet-profile", "k3s", "--kubelet-config=configz:10250"),
        ("kubelet-root", "/k", "--kubelet-root=/k"),
        ("kubelet-config", "restricted/pod", "--kubelet-config=restricted/pod"),
        ("kubelet-ca-config-map", "kubelets", "--kubelet-ca-config-map=kubelets"),
        ("kubelet-insecure", "", "--kubelet-insecure"),
    ];

    /// Each flag of the operator is set by `render`, and by a variable for OLM, or is fixed for a reason.
    #[test]
    fn every_flag_of_the_operator_can_be_set() {
        let operator = super::super::Args::augment_args(Command::new("operator"));
        for flag in operator.get_arguments().filter_map(|arg| Some((arg.get_long()?, arg))) {
            let (name, arg) = flag;
            let value = |text: &str| if text.is_empty() { String::new() } else { format!("={text}") };
            let variable = format!("THOLEPIN_{}", name.to_uppercase().replace('-', "_"));
            let has_variable = arg.get_env().is_some_and(|env| *env == *variable);
            if let Some((_, text, wanted)) = OWN.iter().find(|(own, ..)| *own == name) {
                let set = args(&rendered(&[&format!("--{name}{}", value(text))]).unwrap());
                assert!(set.contains(&(*wanted).to_owned()), "{name}: {set:?}");
                assert!(has_variable, "{name} has no variable {variable}");
                assert!(FIXED.iter().any(|(fixed, _)| *fixed == name), "{name} can be set twice");
                continue;
            }
            if FIXED.iter().any(|(fixed, _)| *fixed == name) {
                let error = rendered(&[&format!("--operator-flag=--{name}=x")]).unwrap_err();
                assert!(error.contains(&format!("--{name} is fixed: ")), "{error}");
                continue;
            }
            let (_, text) = VALUES.iter().find(|(known, _)| *known == name).unwrap_or_else(|| {
                panic!("--{name} is neither set by render nor fixed: name a value for it, or a reason")
            });
            let flag = format!("--{name}{}", value(text));
            let set = args(&rendered(&[&format!("--operator-flag={flag}")]).unwrap());
            assert_eq!(set, ["operator", &flag]);
            assert!(has_variable, "{name} has no variable {variable}");
        }
    }

    #[test]
    fn flags_that_the_operator_refuses_are_refused() {
        for (flag, wanted) in [
            ("--operator-flag=--nonsense", "--operator-flag: unexpected argument '--nonsense' found"),
            (
                "--operator-flag=--scheduler=maybe",
                "--operator-flag: invalid value 'maybe' for '--scheduler <BOOL>'",
            ),
            ("--operator-flag=word", "--operator-flag: unexpected argument 'word' found"),
        ] {
            let error = rendered(&[flag]).unwrap_err();
            assert!(error.starts_with(wanted), "{error}");
        }
    }
}
