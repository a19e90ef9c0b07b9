mod dumped;
mod files;
mod flags;
mod wrong;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::{Value as Yaml, json};
use tempfile::TempDir;

use super::*;
use crate::settings::Settings;

/// The built-in configuration as RTE prints it, in JSON.
const BUILT_IN: &str = r#"{"global":{"verbose":2},"nrtUpdater":{"patchMode":true,"patchResync":10},"resourceMonitor":{"sysfsRoot":"/sys","podSetFingerprint":true,"podSetFingerprintMethod":"with-exclusive-resources"},"topologyExporter":{"kubeletConfigFile":"/podresources/config.yaml","podResourcesSocketPath":"unix:///podresources/kubelet.sock","sleepInterval":60000000000,"podReadinessEnable":true,"maxEventPerTimeUnit":1,"timeUnitToLimitEvents":1000000000,"addNRTOwnerEnable":true,"metricsMode":"disabled","metricsPort":2112,"metricsAddress":"0.0.0.0","metricsTLS":{"certsDir":"/etc/secrets/rte","certFile":"tls.crt","keyFile":"tls.key"}}}"#;

/// The world of a pod as RTE's manifests make it, except that nothing but `files` is mounted.
struct World {
    env: Environment,
    root: TempDir,
}

impl World {
    fn new(files: &[(&str, &str)], variables: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let own = [("NODE_NAME", "node-a"), ("REFERENCE_NAMESPACE", "rte"), ("REFERENCE_POD_NAME", "rte-x")];
        let variables =
            own.iter().chain(variables).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let env = Environment {
            variables: variables.collect(),
            root: root.path().to_owned(),
            host: "Host-1".to_owned(),
            user: 7,
        };
        let world = Self { env, root };
        for (path, text) in files {
            world.put(path, text);
        }
        world
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.root.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A link whose target is relative to it.
    fn link(&self, path: &str, target: &str) {
        let path = self.root.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    fn start(&self, arguments: &[&str]) -> Start {
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        RTE.start("resource-topology-exporter", arguments, &self.env)
    }

    #[track_caller]
    fn plan(&self, arguments: &[&str]) -> Plan {
        match self.start(arguments) {
            Start::Run(plan) => *plan,
            Start::End(ending) => panic!("{arguments:?}: {ending:?}"),
        }
    }

    #[track_caller]
    fn settings(&self, arguments: &[&str]) -> Settings {
        self.plan(arguments).settings
    }

    #[track_caller]
    fn ends(&self, arguments: &[&str]) -> Ending {
        match self.start(arguments) {
            Start::Run(plan) => panic!("{arguments:?}: {plan:?}"),
            Start::End(ending) => ending,
        }
    }

    /// The dump as a tree.
    #[track_caller]
    fn dump(&self, arguments: &[&str]) -> Yaml {
        let arguments: Vec<&str> = ["--dump-config=.andexit"].iter().chain(arguments).copied().collect();
        let ending = self.ends(&arguments);
        assert_eq!((ending.code, ending.stderr.as_str()), (0, ""));
        runtime::yaml::read_str("dump", &ending.stdout, runtime::yaml::Mode::Strict).unwrap()
    }
}

fn warnings(plan: &Plan) -> Vec<&str> {
    let warnings = plan.notes.iter().filter_map(|note| match note {
        Note::Warning(text) => Some(text.as_str()),
        Note::Info(_) => None,
    });
    warnings.collect()
}

/// The built-in dump with these dotted keys set, or removed by null.
fn built_in_with(changes: &[(&str, Yaml)]) -> Yaml {
    let mut tree: Yaml = serde_json::from_str(BUILT_IN).unwrap();
    for (path, value) in changes {
        let mut at = &mut tree;
        for part in path.split('.') {
            at = &mut at[part];
        }
        *at = value.clone();
    }
    tree
}

#[test]
fn the_table_is_whole() {
    let keys: BTreeSet<Key> = SETTINGS.iter().map(|setting| setting.key).collect();
    assert_eq!(keys.len(), SETTINGS.len(), "a row for each key, once");
    assert_eq!(keys.last(), Some(&Key::Reference), "the last key of the enum");
    assert_eq!(keys.len(), Key::Reference as usize + 1, "no key without a row");
    let unique = |names: Vec<&str>| names.iter().collect::<BTreeSet<_>>().len() == names.len();
    assert!(unique(SETTINGS.iter().filter_map(|setting| setting.flag).collect()));
    assert!(unique(
        SETTINGS.iter().flat_map(|setting| [Some(setting.path), setting.alias]).flatten().collect()
    ));
    for setting in SETTINGS {
        let default = Value::of_text(setting.kind, setting.default);
        assert!(default.is_ok(), "{setting:?}");
        assert_eq!(Config::default().value(setting.key), default.unwrap(), "{setting:?}");
    }
}
