//! Documents: one of each kind, and what can be wrong with it.

use runtime::random::Random;

use super::value::{SCALARS, chance, pick};

/// What a file should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Kubeconfig,
    ExporterConfig,
    KubeletConfig,
    SchedulerConfig,
    DevicePluginConfig,
    DeviceConfig,
    Workload,
    Dump,
    Cdi,
    PfpStatus,
    PodResources,
    Topics,
    PullSecret,
    Text,
    /// A folder with some of the others.
    Folder,
}

impl Kind {
    /// Kinds of the files of a folder, with names that programs look for.
    pub(super) const IN_FOLDERS: &[(&str, Self)] = &[
        ("devices.json", Self::Cdi),
        ("vendor.yaml", Self::Cdi),
        ("nodes.yaml", Self::Dump),
        ("pods.json", Self::Dump),
        ("default.yaml", Self::DevicePluginConfig),
        ("config.yaml", Self::SchedulerConfig),
        ("kubeletconfig.yaml", Self::KubeletConfig),
        ("pfpstatus.json", Self::PfpStatus),
    ];
    /// Files of recorded answers.
    pub(super) const RECORDED: &[(&str, Self)] =
        &[("list.json", Self::PodResources), ("get_allocatable_resources.json", Self::PodResources)];

    /// A document that is right.
    pub(super) fn right(self) -> &'static str {
        match self {
            Self::Kubeconfig => KUBECONFIG,
            Self::ExporterConfig => {
                "excludeList:\n  '*': [memory]\n  node-1: [cpu, 'hugepages-2Mi']\nresourceExclude: {n1: [cpu]}\npodExclude: [{namespacePattern: kube-*, namePattern: '*'}]\nkubelet: {topologyManagerPolicy: single-numa-node, topologyManagerScope: pod}\n"
            }
            Self::KubeletConfig => {
                "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\ntopologyManagerPolicy: single-numa-node\ntopologyManagerScope: container\nreservedSystemCPUs: 0-1,8\nreservedMemory: [{numaNode: 0, limits: {memory: 1100Mi}}]\nkubeReserved: {cpu: 500m, memory: 1Gi}\nfeatureGates: {A: true}\n"
            }
            Self::SchedulerConfig => SCHEDULER,
            Self::DevicePluginConfig => {
                "version: v1alpha1\nresources:\n- name: example.com/nic\n  discovery:\n    pci: {vendors: ['8086'], classes: ['0200'], drivers: [vfio-pci], nodes: auto}\n- name: example.com/acc\n  discovery: {directory: {path: /proc, prefix: acc, zones: {acc0: [0]}}}\n- name: example.com/l\n  discovery: {list: {'*': [{id: a, zones: [0], healthy: true}]}}\n"
            }
            Self::DeviceConfig => {
                "apiVersion: example.com/v1alpha1\nkind: DeviceConfig\nmetadata: {name: a, namespace: b}\nspec:\n  driverImage: registry.example/d\n  driverVersion: 1.0.0\n  nodeSelector: {a: b}\n---\nkind: List\napiVersion: v1\nitems: []\n"
            }
            Self::Workload => {
                "arrivals:\n- {at_ms: 0, life_ms: 5211, cpus: 10, memory_mib: 256}\n- {at_ms: 333, life_ms: 4312, cpus: 2, memory_mib: 256}\n"
            }
            Self::Dump => DUMP,
            Self::Cdi => {
                r#"{"cdiVersion":"0.6.0","kind":"vendor.com/net","containerEdits":{"env":["A=b"]},"devices":[{"name":"a","containerEdits":{"deviceNodes":[{"path":"/dev/a","type":"c","major":1,"minor":3,"permissions":"rw"}],"mounts":[{"hostPath":"/a","containerPath":"/b","options":["ro"]}],"hooks":[{"hookName":"createContainer","path":"/bin/true","args":["a"]}]}}]}"#
            }
            Self::PfpStatus => {
                r#"{"node-1":{"fingerprintExpected":"pfp0v001a","fingerprintComputed":"pfp0v001b","pods":[{"Namespace":"a","Name":"b"}],"nodeName":"node-1","lastTransition":"2026-01-01T00:00:00Z"}}"#
            }
            Self::PodResources => {
                r#"{"pod_resources":[{"name":"a","namespace":"b","containers":[{"name":"c","cpu_ids":[1,2],"devices":[{"resource_name":"example.com/d","device_ids":["x"],"topology":{"nodes":[{"ID":0}]}}],"memory":[{"memory_type":"memory","size":1024,"topology":{"nodes":[{"ID":0}]}}]}]}],"cpu_ids":[0,1,2,3]}"#
            }
            Self::Topics => r#"{"version":"v1","components":[],"active":["cache","stall"],"inactive":["x"]}"#,
            Self::PullSecret => r#"{"auths":{"registry.example":{"auth":"YTpi"}}}"#,
            Self::Text => "kube-system a\n# note\n${HOME} $A ${B:-c}\ndefault b  x\n",
            Self::Folder => "",
        }
    }

    /// The same with some mistakes.
    pub(super) fn wrong(self, random: &mut Random) -> Vec<u8> {
        let mut text = self.right().as_bytes().to_vec();
        for _ in 0..=random.below(4) {
            text = mistake(text, random);
            text.truncate(LARGEST_BYTES);
        }
        text
    }
}

fn place(random: &mut Random, length: usize) -> usize {
    usize::try_from(random.below(length as u64 + 1)).unwrap()
}

/// Ranges of the scalars and keys in a document, roughly: words between punctuation.
fn words(text: &[u8]) -> Vec<(usize, usize)> {
    let is_word =
        |byte: u8| !matches!(byte, b' ' | b'\n' | b':' | b',' | b'[' | b']' | b'{' | b'}' | b'"' | b'\'');
    let mut found = Vec::new();
    let mut begin = None;
    for (at, byte) in text.iter().chain([&b'\n']).enumerate() {
        match (is_word(*byte), begin) {
            (true, None) => begin = Some(at),
            (false, Some(from)) => {
                found.push((from, at));
                begin = None;
            }
            _ => {}
        }
    }
    found
}

fn replaced(text: &[u8], (from, to): (usize, usize), by: &[u8]) -> Vec<u8> {
    [&text[..from], by, &text[to..]].concat()
}

fn mistake(text: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let words = words(&text);
    let word = words.get(place(random, words.len().saturating_sub(1))).copied().unwrap_or((0, 0));
    let at = place(random, text.len());
    match random.below(22) {
        0 => text[..at].to_vec(),
        1 => replaced(&text, (at, at), &[random.bits().to_le_bytes()[0]]),
        2 => replaced(&text, word, b""),
        3 => replaced(&text, word, &b"x".repeat(300_000)),
        4 => replaced(&text, word, b"\xff\xfe\x00"),
        5 => replaced(&text, word, &[b"[".repeat(20_000), b"]".repeat(20_000)].concat()),
        6 => replaced(&text, word, &b"{a: ".repeat(5_000)),
        7 => replaced(&text, word, b"[]"),
        8 => replaced(&text, word, b"{}"),
        9 => [b"\xef\xbb\xbf".as_slice(), &text].concat(),
        10 => text.iter().flat_map(|byte| [*byte, 0]).collect(),
        11 => [text.as_slice(), b"\n---\n", &text].concat(),
        12 => replaced(&text, (at, at), BOMB.as_bytes()),
        13 => text.repeat(1 + place(random, LARGEST_BYTES / text.len().max(1)).min(2_000)),
        14 => replaced(&text, word, b"!!binary x"),
        15 => replaced(&text, word, b"&a [*a, *a, *b]"),
        16 => (0..2_000).map(|_| random.bits().to_le_bytes()[0]).collect(),
        17 if chance(random, 30) => b"- {}\n".repeat(60_000),
        _ => {
            let scalar = pick(random, SCALARS);
            replaced(&text, word, scalar.as_bytes())
        }
    }
}

/// The most of a document: programs built for tests read a megabyte a second.
const LARGEST_BYTES: usize = 2 << 20;

/// Aliases of aliases.
const BOMB: &str = "\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d \
    [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: \
    [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n";

/// The server's address is added by the case.
const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters:\n- name: a\n  cluster: {server: \
    'http://127.0.0.1:PORT', insecure-skip-tls-verify: true}\ncontexts:\n- name: a\n  context: {cluster: a, user: a}\nusers:\n- \
    name: a\n  user: {token: abc}\n";

const SCHEDULER: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection: \
    {leaderElect: false}\nprofiles:\n- schedulerName: a\n  plugins:\n    multiPoint: {enabled: [{name: \
    NodeResourceTopologyMatch, weight: 5}]}\n    filter: {disabled: [{name: '*'}]}\n  pluginConfig:\n  - name: \
    NodeResourceTopologyMatch\n    args: {cacheResyncPeriodSeconds: 5, scoringStrategy: {type: LeastAllocated, resources: [{name: \
    cpu, weight: 1}]}, cache: {foreignPodsDetect: None, resyncMethod: Autodetect, informerMode: Dedicated}}\n  - name: \
    NodeResourcesFit\n    args: {scoringStrategy: {type: LeastAllocated}}\n";

const DUMP: &str = r#"{"kind":"List","apiVersion":"v1","items":[
{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u"},"status":{"allocatable":{"cpu":"32","memory":"64Gi","pods":"110","hugepages-2Mi":"0"},"capacity":{"cpu":"32"},"nodeInfo":{"kubeletVersion":"v1.36.3"}}},
{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"d","uid":"v"},"spec":{"nodeName":"n1","containers":[{"name":"c","resources":{"requests":{"cpu":"4","memory":"1Gi"},"limits":{"cpu":"4","memory":"1Gi"}}}]},"status":{"phase":"Running","startTime":"2026-01-01T00:00:00Z"}},
{"kind":"NodeResourceTopology","apiVersion":"topology.node.k8s.io/v1alpha2","metadata":{"name":"n1"},"attributes":[{"name":"topologyManagerPolicy","value":"single-numa-node"},{"name":"topologyManagerScope","value":"container"}],"zones":[{"name":"node-0","type":"Node","costs":[{"name":"node-0","value":10}],"resources":[{"name":"cpu","capacity":"16","allocatable":"15","available":"11"}]},{"name":"node-1","type":"Node","resources":[{"name":"cpu","capacity":"16","allocatable":"16","available":"16"}]}]}]}"#;
