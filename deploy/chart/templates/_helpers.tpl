{{- define "tholepin.kubelet.configz" }}configz:10250{{ end -}}

{{- define "tholepin.kubelet.usualRoot" -}}
{{- get (dict "kubeadm" "/var/lib/kubelet" "k3s" "/var/lib/kubelet" "rke2" "/var/lib/kubelet" "microk8s" "/var/snap/microk8s/common/var/lib/kubelet" "talos" "/var/lib/kubelet" "kind" "/var/lib/kubelet" "eks" "/var/lib/kubelet" "gke" "/var/lib/kubelet" "aks" "/var/lib/kubelet" "openshift" "/var/lib/kubelet") (include "tholepin.kubelet.profile" $) -}}
{{- end -}}

{{- define "tholepin.kubelet.usualConfig" -}}
{{- get (dict "kubeadm" "/var/lib/kubelet/config.yaml" "k3s" "configz:10250" "rke2" "configz:10250" "microk8s" "configz:10250" "talos" "configz:10250" "kind" "/var/lib/kubelet/config.yaml" "eks" "configz:10250" "gke" "configz:10250" "aks" "configz:10250" "openshift" "configz:10250") (include "tholepin.kubelet.profile" $) -}}
{{- end -}}

{{- define "tholepin.image" -}}
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
