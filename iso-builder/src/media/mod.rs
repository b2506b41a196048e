//! Media: ISOs and the netboot set, assembled from finished payloads.
