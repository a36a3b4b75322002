"""File formats: one file per format."""

from trek.data.sources.formats.base import Asked, FileFormat, TextOptions
from trek.data.sources.formats.format_registry import FORMATS, PACKINGS, TYPES_REMEDY, format_of, suffix_of

__all__ = ["FORMATS", "PACKINGS", "TYPES_REMEDY", "Asked", "FileFormat", "TextOptions", "format_of", "suffix_of"]
