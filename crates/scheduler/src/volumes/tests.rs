//! The objects of storage by themselves: what changes help, and what is assumed.

use serde_json::json;

use super::*;
