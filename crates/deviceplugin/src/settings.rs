//! What a command line comes to.
//!
//! In: flags, ours or the sample plugin's. Out: where the configuration is, where everything on this node is. Never: a look at the node.

use std::net::SocketAddr;
use std::path::PathBuf;

use node::deviceplugin::Way;

use crate::config::{Config, Error};
use crate::discovery::Place;

/// The settings of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The configuration, or where it is.
    pub source: Source,
    /// Where devices are looked for.
    pub place: Place,
    /// How the kubelet gets to know of us.
    pub way: Way,
    /// The folder of our sockets.
    pub folder: PathBuf,
    /// The folder of Container Device Interface files.
    pub cdi_dir: PathBuf,
    /// Where metrics and health are served, if they are.
    pub http: Option<SocketAddr>,
    /// How the devices are offered for resource claims, if they are.
    pub dra: Option<crate::dra::Settings>,
}

/// Where the configuration is.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// In a file, which may change.
    File(PathBuf),
    /// In the flags.
    Flags(Config),
}

impl Settings {
    /// The configuration now, as far as it is about this node.
    ///
    /// # Errors
    /// When the file cannot be read or is wrong.
    pub fn read(&self) -> Result<Config, Error> {
        let config = match &self.source {
            Source::File(path) => Config::read(path)?,
            Source::Flags(config) => config.clone(),
        };
        Ok(config.of_node(&self.place.node))
    }
}
