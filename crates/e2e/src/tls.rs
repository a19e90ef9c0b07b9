//! TLS of the stack's ports.
//!
//! In: the cluster's profile, a pod and a port. Out: the versions and suites that are wanted, and those that the port
//! takes. Never: a handshake that is finished: version and suite are in the server's first answer.

pub mod hello;
pub mod profile;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use self::hello::{Answer, ClientHello, RECORD_HEADER, TLS12, TLS13};
use self::profile::Profile;
use crate::fixture::Fixture;
use crate::platform;
use crate::spec::Result;

impl Fixture {
    /// What the cluster wants of TLS servers.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn tls_profile(&self) -> Result<Profile> {
        let server = self.read(&platform::config("APIServer", "apiservers")).await?;
        Profile::of(&server["spec"]["tlsSecurityProfile"])
    }

    /// The first answer of a port of a pod to a client's first message.
    ///
    /// # Errors
    /// When the port cannot be reached, or does not answer in TLS.
    pub async fn tls_answer(&self, pod: &Pod, port: u16, hello: &ClientHello<'_>) -> Result<Answer> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name) = (text(&pod.metadata.namespace), text(&pod.metadata.name));
        let asking = async {
            let pods = Api::<Pod>::namespaced(self.cluster().watches.clone(), &namespace);
            let mut forwarder = pods.portforward(&name, &[port]).await?;
            let mut stream = forwarder.take_stream(port).context("no stream for the port")?;
            stream.write_all(&hello.bytes()).await?;
            let mut header = [0; RECORD_HEADER];
            stream.read_exact(&mut header).await?;
            let mut body = vec![0; hello::length(header)];
            stream.read_exact(&mut body).await?;
            forwarder.abort();
            Answer::parse(header, &body)
        };
        let patience = self.cluster().settings.patience;
        let answer = tokio::time::timeout(patience, asking).await;
        let answer = answer.with_context(|| format!("no answer within {} s", patience.as_secs())).flatten();
        answer.with_context(|| format!("asking port {port} of pod {name}"))
    }

    /// Fails unless a port takes what the profile has.
    ///
    /// # Errors
    /// Version or suite that the port has chosen outside of the profile.
    pub async fn keeps_profile(&self, pod: &Pod, port: u16, profile: &Profile) -> Result {
        let all = profile::all();
        let offers = [&[TLS13, TLS12][..], &[TLS12][..]];
        // A client with nothing newer than 1.2 is taken only where 1.2 is allowed.
        let wanted = offers.into_iter().filter(|versions| versions.iter().any(|v| *v >= profile.min_version));
        for versions in wanted {
            let answer = self.tls_answer(pod, port, &ClientHello { versions, suites: &all }).await?;
            let Answer::Chosen { version, suite } = answer else {
                anyhow::bail!("port {port} refuses TLS {}: {answer:?}", hello::names(versions));
            };
            ensure!(version >= profile.min_version, "port {port} takes TLS version {version:#06x}");
            let is_allowed = version >= TLS13 || profile.suites.contains(&suite);
            ensure!(is_allowed, "port {port} takes suite {suite:#06x}, which the profile does not have");
        }
        Ok(())
    }

    /// Fails unless a port refuses the version before the oldest of the profile, and suites outside of it.
    ///
    /// # Errors
    /// Version or suite that the port has chosen.
    pub async fn refuses_others(&self, pod: &Pod, port: u16, profile: &Profile) -> Result {
        let all = profile::all();
        let older = [profile.min_version - 1];
        let mut hellos = vec![ClientHello { versions: &older, suites: &all }];
        let others = profile.others();
        // Suites of TLS 1.3 cannot be chosen.
        if profile.min_version < TLS13 && !others.is_empty() {
            hellos.push(ClientHello { versions: &[TLS12], suites: &others });
        }
        for hello in hellos {
            let answer = self.tls_answer(pod, port, &hello).await?;
            let refused = matches!(answer, Answer::Refused { .. });
            ensure!(refused, "port {port} takes {answer:?} of {}", hello::names(hello.versions));
        }
        Ok(())
    }
}
