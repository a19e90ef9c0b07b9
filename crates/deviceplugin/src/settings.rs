//! The settings that a command line results in.
//!
//! In: flags, ours or the sample plugin's. Out: where the configuration is, and the node's paths. Never: a look at the
//! node, except to read the configuration.

use std::net::SocketAddr;
use std::path::PathBuf;

use node::deviceplugin::RegistrationMode;
use runtime::yaml;

use crate::config::{Config, Error};
use crate::content_hash::ContentHash;
use crate::discovery::Environment;

/// The settings of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The configuration, or the path of its file.
    pub source: ConfigSource,
    /// The node's name and files, and what of them devices may be.
    pub environment: Environment,
    /// How the plugin gets known to the kubelet.
    pub registration: RegistrationMode,
    /// The folder of the plugin's sockets.
    pub socket_dir: PathBuf,
    /// The folder of Container Device Interface files.
    pub cdi_dir: PathBuf,
    /// The address that serves metrics and health; none turns them off.
    pub http: Option<SocketAddr>,
    /// The address that serves health alone; none turns it off.
    pub health: Option<SocketAddr>,
    /// The settings for resource claims; none when devices are not offered that way.
    pub dra: Option<crate::dra::Settings>,
}

/// Where the configuration is.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigSource {
    /// A file, which may change.
    File(PathBuf),
    /// The flags.
    Flags(Config),
}

impl Settings {
    /// Reads the configuration, without other nodes' devices.
    ///
    /// # Errors
    /// When the file cannot be read or is wrong.
    pub fn read(&self) -> Result<Config, Error> {
        let config = match &self.source {
            ConfigSource::File(path) => self.allowed(Config::read(path)?, &path.display().to_string())?,
            ConfigSource::Flags(config) => config.clone(),
        };
        Ok(config.of_node(&self.environment.node))
    }

    /// Reads the configuration; none when its text equals the one read last, or the flags have the configuration.
    ///
    /// # Errors
    /// As [`Settings::read`], once for each text that is wrong.
    pub fn read_if_changed(&self, last: &mut ContentHash) -> Result<Option<Config>, Error> {
        let ConfigSource::File(path) = &self.source else { return Ok(None) };
        let text = yaml::read_text(path, yaml::CONFIG_LIMIT_BYTES)?;
        if last.is_unchanged(&text) {
            return Ok(None);
        }
        let name = path.display().to_string();
        let config = self.allowed(Config::parse(&name, &text)?, &name)?;
        Ok(Some(config.of_node(&self.environment.node)))
    }

    fn allowed(&self, config: Config, name: &str) -> Result<Config, Error> {
        if self.environment.allow_host_paths { Ok(config) } else { config.without_whole_node(name) }
    }
}
