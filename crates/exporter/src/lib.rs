//! exporter
