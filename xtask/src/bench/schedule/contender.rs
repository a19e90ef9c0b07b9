//! A scheduler that a benchmark measures.
//!
//! In: what was asked for. Out: its process, once it schedules, and the scheduler name of its pods. Never: the nodes.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::process_group::Process;

use super::SchedulerChoice;
use crate::bench::rig::{STOCK, TOPO_AWARE, TestBed};

/// Which program runs, and whether it looks at zones.
#[derive(Debug, Clone)]
pub(super) enum Contender {
    /// kube-scheduler with its default profile.
    KubeScheduler,
    /// tholepin with its default profile, which looks at the zones of nodes that report them.
    Tholepin,
    /// tholepin with kube-scheduler's default profile, which does not.
    BlindTholepin,
    /// Any other scheduler that takes kube-scheduler's configuration and flags.
    Peer { program: PathBuf, config: Value },
}

/// A scheduler that runs.
pub(super) struct StartedScheduler {
    pub(super) process: Process,
    /// The scheduler name of its pods.
    pub(super) profile: String,
}

impl Contender {
    /// The contenders of a run, in the order in which they are measured. Where nodes have zones, tholepin is measured
    /// without and with a look at them, so that their price is seen in one run.
    pub(super) fn all(choices: &[SchedulerChoice], numa: bool, peer: Option<Self>) -> Vec<Self> {
        let own = |choice: &SchedulerChoice| match (choice, numa) {
            (SchedulerChoice::KubeScheduler, _) => vec![Self::KubeScheduler],
            (SchedulerChoice::Tholepin, false) => vec![Self::Tholepin],
            (SchedulerChoice::Tholepin, true) => vec![Self::BlindTholepin, Self::Tholepin],
        };
        choices.iter().flat_map(own).chain(peer).collect()
    }

    /// Another scheduler with a configuration file; its client and leader election are replaced.
    pub(super) fn peer(program: &Path, config: &Path) -> anyhow::Result<Self> {
        let name = config.display().to_string();
        let text = std::fs::read_to_string(config).with_context(|| name.clone())?;
        let config: Value =
            runtime::yaml::read_many(&name, &text, 1)?.pop().with_context(|| format!("{name}: empty"))?;
        ensure!(config.is_object(), "{name}: not a KubeSchedulerConfiguration");
        let program = program.canonicalize().with_context(|| program.display().to_string())?;
        Ok(Self::Peer { program, config })
    }

    /// Its name in the result.
    pub(super) fn name(&self) -> String {
        match self {
            Self::KubeScheduler => "kube-scheduler".to_owned(),
            Self::Tholepin | Self::BlindTholepin => "tholepin".to_owned(),
            Self::Peer { program, .. } => {
                program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
            }
        }
    }

    /// Whether it looks at zones.
    pub(super) fn sees_zones(&self) -> bool {
        match self {
            Self::KubeScheduler | Self::BlindTholepin => false,
            Self::Tholepin => true,
            Self::Peer { config, .. } => config.to_string().contains("NodeResourceTopologyMatch"),
        }
    }

    /// Starts it, and waits until it schedules.
    pub(super) async fn start(&self, bed: &mut TestBed) -> anyhow::Result<StartedScheduler> {
        let (process, profile) = match self {
            Self::KubeScheduler => (bed.cluster.control().start_scheduler().await?, STOCK.to_owned()),
            Self::Tholepin => {
                bed.start_scheduler().await?;
                (bed.scheduler.take().context("no scheduler")?, TOPO_AWARE.to_owned())
            }
            Self::BlindTholepin => {
                bed.start_scheduler_as_stock().await?;
                (bed.scheduler.take().context("no scheduler")?, STOCK.to_owned())
            }
            Self::Peer { program, config } => {
                let control = bed.cluster.control();
                let file = control.scheduler_config_of("peer", config.clone())?;
                let profile = config["profiles"][0]["schedulerName"].as_str().unwrap_or(STOCK);
                (control.start_scheduler_program(program, &file).await?, profile.to_owned())
            }
        };
        Ok(StartedScheduler { process, profile })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // failing loudly is what a test is for

    use serde_json::json;

    use super::*;

    /// Names and whether zones count, of the contenders of a run.
    fn rows(numa: bool, peer: Option<Contender>) -> Vec<(String, bool)> {
        let all = Contender::all(&SchedulerChoice::ALL, numa, peer);
        all.iter().map(|contender| (contender.name(), contender.sees_zones())).collect()
    }

    #[test]
    fn zones_have_a_row_without_them_beside() {
        let named = |rows: &[(&str, bool)]| -> Vec<(String, bool)> {
            rows.iter().map(|(name, zones)| ((*name).to_owned(), *zones)).collect()
        };
        assert_eq!(rows(false, None), named(&[("kube-scheduler", false), ("tholepin", true)]));
        let peer = Contender::Peer {
            program: "bin/other".into(),
            config: json!({ "profiles": [{ "pluginConfig": [{ "name": "NodeResourceTopologyMatch" }] }] }),
        };
        assert_eq!(
            rows(true, Some(peer)),
            named(&[("kube-scheduler", false), ("tholepin", false), ("tholepin", true), ("other", true)])
        );
    }

    #[test]
    fn a_peer_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config.yaml");
        std::fs::write(&config, "profiles: [").unwrap();
        let error = Contender::peer(&config, &config).unwrap_err().to_string();
        assert!(error.contains("config.yaml"), "{error}");
        std::fs::write(&config, "[a, b]").unwrap();
        let error = Contender::peer(&config, &config).unwrap_err().to_string();
        assert!(error.contains("config.yaml: not a KubeSchedulerConfiguration"), "{error}");
        std::fs::write(&config, "kind: KubeSchedulerConfiguration").unwrap();
        let error = Contender::peer(&dir.path().join("none"), &config).unwrap_err().to_string();
        assert!(error.contains("none"), "{error}");
    }
}
