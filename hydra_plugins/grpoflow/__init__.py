"""What Hydra learns from us: layouts that need no file, and a launcher that runs a sweep as one build.

Hydra imports these modules whenever it composes anything, so they are light on imports. It does so
before they are in sys.modules, where dataclasses look up annotations that are text: hence no __future__
import of annotations in them.
"""
