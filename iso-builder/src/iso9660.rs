//! Reading ISO 9660 images without mounting them.
