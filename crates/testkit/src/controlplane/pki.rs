//! The one certificate authority of a control plane: serving certificates and client identities, made in memory.

use std::fs;
use std::path::Path;

use crate::net;
use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// The kubelets of as many nodes can be verified under their own addresses.
const NODES: usize = 16;

/// A certificate authority.
pub(super) struct Pki {
    issuer: Issuer<'static, KeyPair>,
    ca_pem: String,
}

/// A certificate and its key, both PEM.
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Pki {
    pub(super) fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "testkit");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let ca_pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), ca_pem })
    }

    /// The authority's own certificate.
    pub(super) fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// For a server on this machine, or on one of the first nodes of a network.
    pub(super) fn server(&self) -> anyhow::Result<Pair> {
        let names = ["localhost", "127.0.0.1", "kubernetes.default.svc", &net::API.to_string()];
        let nodes = (0..NODES).map(|node| net::node_address(node).to_string());
        let params =
            CertificateParams::new(names.map(str::to_owned).into_iter().chain(nodes).collect::<Vec<_>>())?;
        self.sign(params, "testkit server", ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// For a client whom the API server shall see as `user`, member of `group`.
    pub(super) fn client(&self, user: &str, group: &str) -> anyhow::Result<Pair> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::OrganizationName, group);
        self.sign(params, user, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        name: &str,
        usage: ExtendedKeyUsagePurpose,
    ) -> anyhow::Result<Pair> {
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Pair { certificate, key: key.serialize_pem() })
    }
}

/// Writes the key pair that signs service account tokens: `<dir>/sa.key` and `<dir>/sa.pub`.
pub(super) fn write_signing_key(dir: &Path) -> anyhow::Result<()> {
    // The public half separately: the API server does not take it out of a PKCS #8 key of elliptic curves.
    let key = KeyPair::generate()?;
    write(&dir.join("sa.key"), &key.serialize_pem())?;
    write(&dir.join("sa.pub"), &key.public_key_pem())
}

pub(super) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
