package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
)

// The feature gates as this program has them before any configuration.
var gates = utilfeature.DefaultMutableFeatureGate.DeepCopy()

var codecs = func() *serializer.CodecFactory {
	_, codecs, err := scheme.NewSchemeAndCodecs(serializer.EnableStrict)
	if err != nil {
		panic(err)
	}
	return codecs
}()

// loadConfig reads a configuration as the kubelet reads its file: strict decoding with defaults, feature gates (those
// of the process are replaced), validation. The errors are the kubelet's.
func loadConfig(raw json.RawMessage) (*kubeletconfig.KubeletConfiguration, error) {
	object := map[string]any{}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &object); err != nil {
			return nil, fmt.Errorf("failed to load kubelet config file: %w", err)
		}
	}
	object["apiVersion"] = "kubelet.config.k8s.io/v1beta1"
	object["kind"] = "KubeletConfiguration"
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	resetGates()
	config, err := decodeWithDefaults(data)
	if err != nil {
		return nil, fmt.Errorf("failed to load kubelet config file, error: %w", err)
	}
	if config.EvictionHard == nil {
		config.EvictionHard = maps.Clone(eviction.DefaultEvictionHard)
	} else if config.MergeDefaultEvictionSettings {
		merged := maps.Clone(eviction.DefaultEvictionHard)
		maps.Copy(merged, config.EvictionHard)
		config.EvictionHard = merged
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(config.FeatureGates); err != nil {
		return nil, fmt.Errorf("failed to set feature gates from initial flags-based config: %w", err)
	}
	// The cgroup version is that of the host, which the machine in question is not.
	onlyHost := config.DeepCopy()
	onlyHost.FailCgroupV1 = false
	if err := validation.ValidateKubeletConfiguration(onlyHost, utilfeature.DefaultFeatureGate); err != nil {
		return nil, fmt.Errorf("failed to validate kubelet configuration, error: %w", err)
	}
	return config, nil
}

// decodeWithDefaults decodes a configuration. Defaults depend on feature gates, and bad gates make the kubelet panic
// there: its last words are the error.
func decodeWithDefaults(data []byte) (config *kubeletconfig.KubeletConfiguration, err error) {
	defer func() {
		if what := recover(); what != nil {
			err = fmt.Errorf("%v", what)
		}
	}()
	return decodeConfig(data)
}

func resetGates() {
	fresh := gates.DeepCopy()
	utilfeature.DefaultMutableFeatureGate = fresh
	utilfeature.DefaultFeatureGate = fresh
}

// nodeConfig turns a configuration into what the container manager is made with, in the order of the kubelet's start.
func nodeConfig(config *kubeletconfig.KubeletConfiguration, machine *machineInfo) (*cm.NodeConfig, error) {
	reservedCPUs, err := reservedSystemCPUs(machine, config.ReservedSystemCPUs)
	if err != nil {
		return nil, err
	}
	if reservedCPUs.Size() > 0 {
		delete(config.KubeReserved, "cpu")
		if config.SystemReserved == nil {
			config.SystemReserved = map[string]string{}
		}
		config.SystemReserved["cpu"] = strconv.Itoa(reservedCPUs.Size())
	}
	kubeReserved, err := parseResourceList(config.KubeReserved)
	if err != nil {
		return nil, fmt.Errorf("--kube-reserved value failed to parse: %w", err)
	}
	systemReserved, err := parseResourceList(config.SystemReserved)
	if err != nil {
		return nil, fmt.Errorf("--system-reserved value failed to parse: %w", err)
	}
	thresholds, err := eviction.ParseThresholdConfig(nil, config.EvictionHard, nil, nil, nil)
	if err != nil {
		return nil, err
	}
	if _, err := cm.ParseQOSReserved(config.QOSReserved); err != nil {
		return nil, fmt.Errorf("--qos-reserved value failed to parse: %w", err)
	}
	topologyOptions := config.TopologyManagerPolicyOptions
	if !utilfeature.DefaultFeatureGate.Enabled(features.TopologyManagerPolicyOptions) && topologyOptions != nil {
		return nil, fmt.Errorf("topology manager policy options %v require feature gates %q enabled",
			topologyOptions, features.TopologyManagerPolicyOptions)
	}
	return &cm.NodeConfig{
		NodeAllocatableConfig: cm.NodeAllocatableConfig{
			KubeReserved:           kubeReserved,
			SystemReserved:         systemReserved,
			ReservedSystemCPUs:     reservedCPUs,
			HardEvictionThresholds: thresholds,
		},
		CPUManagerPolicy:             config.CPUManagerPolicy,
		CPUManagerPolicyOptions:      config.CPUManagerPolicyOptions,
		CPUManagerReconcilePeriod:    config.CPUManagerReconcilePeriod.Duration,
		MemoryManagerPolicy:          config.MemoryManagerPolicy,
		MemoryManagerReservedMemory:  config.ReservedMemory,
		TopologyManagerPolicy:        config.TopologyManagerPolicy,
		TopologyManagerScope:         config.TopologyManagerScope,
		TopologyManagerPolicyOptions: topologyOptions,
	}, nil
}

// background is the context of calls that want one; nothing here is ever cancelled.
var background = context.Background()
