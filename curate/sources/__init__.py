"""Read files and Hub datasets of any known shape as dialogues, and account for every row."""

from curate.sources.config import Columns, Shape, SourceConfig
from curate.sources.detect import Detection
from curate.sources.formats import FORMATS, Format
from curate.sources.input_files import SkippedFile
from curate.sources.mapping import Mapping
from curate.sources.mapping_parts import CallMapping, MessageMapping
from curate.sources.source import Source, open_rows, open_source
from curate.sources.unit_result import RowCounts, Unit
