//! The chart's named templates and what it says after an installation.
//!
//! In: what the deployer knows about distributions. Out: texts. Never: an object.

use std::fmt::Write as _;

use clap::ValueEnum as _;
use deployer::options::{Distribution, KubeletConfig};

/// What Helm prints after an installation.
pub(super) const NOTES: &str = r#"tholepin {{ $.Chart.AppVersion }} is in namespace {{ $.Release.Namespace }}.
{{- if $.Values.exporter.enabled }}

Wait for the exporters, then look at the zones of each node:

  kubectl -n {{ $.Release.Namespace }} rollout status daemonset/tholepin-exporter
  kubectl get noderesourcetopologies

Exporters mount directories of their nodes. Where pods are rejected for that, the namespace needs a label:

  kubectl label namespace {{ $.Release.Namespace }} pod-security.kubernetes.io/enforce=privileged
{{- end }}
{{- if $.Values.scheduler.enabled }}

Pods with this scheduler get zones in which they fit:

  schedulerName: {{ $.Values.scheduler.schedulerName }}
{{- end }}
"#;

/// The words of templates that several objects share.
const SHARED: &str = r#"{{- define "tholepin.image" -}}
{{- with $.Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tholepin.kubernetes" -}}
{{- if semverCompare ">=1.33.0-0" $.Capabilities.KubeVersion.Version -}}
1.33
{{- else if semverCompare ">=1.32.0-0" $.Capabilities.KubeVersion.Version -}}
1.32
{{- else -}}
older
{{- end -}}
{{- end -}}

{{- define "tholepin.kubelet.profile" -}}
{{- $usual := ternary "kubeadm" "openshift" (eq $.Values.platform "kubernetes") -}}
{{- $.Values.kubelet.profile | default $usual -}}
{{- end -}}

{{- define "tholepin.kubelet.root" -}}
{{- $.Values.kubelet.root | default (include "tholepin.kubelet.usualRoot" $) -}}
{{- end -}}

{{- define "tholepin.kubelet.config" -}}
{{- $root := include "tholepin.kubelet.root" $ -}}
{{- $usualRoot := printf "%s/" (include "tholepin.kubelet.usualRoot" $) -}}
{{- $usual := include "tholepin.kubelet.usualConfig" $ -}}
{{- if eq $.Values.kubelet.config "configz" -}}
{{- include "tholepin.kubelet.configz" $ -}}
{{- else if $.Values.kubelet.config -}}
{{- $.Values.kubelet.config -}}
{{- else if hasPrefix $usualRoot $usual -}}
{{- printf "%s/%s" $root (trimPrefix $usualRoot $usual) -}}
{{- else -}}
{{- $usual -}}
{{- end -}}
{{- end -}}

{{- define "tholepin.kubelet.source" -}}
{{- if and $.Values.kubelet.insecure $.Values.kubelet.caConfigMap -}}
{{- fail "kubelet.insecure and kubelet.caConfigMap exclude each other" -}}
{{- end -}}
{{- $config := include "tholepin.kubelet.config" $ -}}
{{- if hasPrefix "configz" $config -}}
configz
{{- else if not (hasPrefix "/" $config) -}}
stated
{{- else if hasPrefix (printf "%s/" (include "tholepin.kubelet.root" $)) $config -}}
file below the root directory
{{- else -}}
file elsewhere
{{- end -}}
{{- end -}}

{{- define "tholepin.kubelet.belowRoot" -}}
{{- trimPrefix (printf "%s/" (include "tholepin.kubelet.root" $)) (include "tholepin.kubelet.config" $) -}}
{{- end -}}

{{- define "tholepin.kubelet.port" -}}
{{- trimPrefix "configz:" (include "tholepin.kubelet.config" $) -}}
{{- end -}}

{{- define "tholepin.kubelet.certificate" -}}
{{- if $.Values.kubelet.insecure -}}
unchecked
{{- else if $.Values.kubelet.caConfigMap -}}
other
{{- else -}}
cluster
{{- end -}}
{{- end -}}
"#;

/// The named templates.
///
/// # Errors
/// When the deployer does not know a kubelet that is asked without a port.
pub(super) fn text() -> anyhow::Result<String> {
    let mut text = String::new();
    let configz: KubeletConfig = "configz".parse().map_err(anyhow::Error::msg)?;
    let _ = write!(text, "{{{{- define \"tholepin.kubelet.configz\" }}}}{configz}{{{{ end -}}}}\n\n");
    by_profile(&mut text, "usualRoot", |distribution| distribution.kubelet().root);
    by_profile(&mut text, "usualConfig", |distribution| distribution.kubelet().config.to_string());
    Ok(text + SHARED)
}

/// A template with what each distribution has.
fn by_profile(text: &mut String, name: &str, value: impl Fn(Distribution) -> String) {
    let _ = writeln!(text, "{{{{- define \"tholepin.kubelet.{name}\" -}}}}");
    let pairs = Distribution::value_variants().iter().filter_map(|distribution| {
        let word = distribution.to_possible_value()?.get_name().to_owned();
        Some(format!(" {word:?} {:?}", value(*distribution)))
    });
    let pairs: String = pairs.collect();
    let _ = writeln!(text, "{{{{- get (dict{pairs}) (include \"tholepin.kubelet.profile\" $) -}}}}");
    text.push_str("{{- end -}}\n\n");
}
